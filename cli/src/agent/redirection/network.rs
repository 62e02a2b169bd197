//! Interfaces and networks, as the command line names them.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use super::tools::run;

/// The name of a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface(String);

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_right = |one: char| one.is_ascii_alphanumeric() || "-_.@".contains(one);
        match text.len() {
            1..=15 if text.chars().all(is_right) => Ok(Self(text.to_owned())),
            _ => Err("no interface has that name; `ip link` lists them".to_owned()),
        }
    }
}

impl Interface {
    /// True if there is such an interface now.
    pub(crate) fn exists(&self) -> bool {
        Path::new("/sys/class/net").join(&self.0).exists()
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// The interfaces of this host's default routes.
///
/// # Errors
/// A sentence about the tool that is missing.
pub(crate) fn default_uplinks() -> Result<Vec<Interface>, String> {
    let mut uplinks = Vec::new();
    for family in ["-4", "-6"] {
        let mut command = Command::new("ip");
        let routes = run(command.args([family, "route", "show", "default"]), None)?;
        for line in routes.lines() {
            let mut words = line.split(' ').skip_while(|word| *word != "dev");
            if let Some(Ok(name)) = words.nth(1).map(Interface::from_str)
                && !uplinks.contains(&name)
            {
                uplinks.push(name);
            }
        }
    }
    Ok(uplinks)
}

/// A network, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(pub(super) IpAddr, pub(super) u8);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || "write a network, such as 192.0.2.0/24 or 2001:db8::/32".to_owned();
        let (address, length) =
            text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(longest), str::parse).map_err(|_| fault())?;
        if length <= longest { Ok(Self(address, length)) } else { Err(fault()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_networks_from_the_command_line_are_checked() {
        for wrong in ["", "br lan", "\"", "a}", "sixteen-letters-"] {
            assert!(wrong.parse::<Interface>().is_err(), "{wrong}");
        }
        for wrong in ["", "x", "192.0.2.0/33", "192.0.2.0/", "2001:db8::/129", "192.0.2.0/24/1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
