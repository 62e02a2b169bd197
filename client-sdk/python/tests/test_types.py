"""The installed package's types, as mypy sees them in the README's lines and in the examples."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PACKAGE = pathlib.Path(__file__).parent.parent


class Types(unittest.TestCase):
    def check(self, *files):
        options = ["--check-untyped-defs", "--no-incremental", "--cache-dir", "/dev/null"]
        done = subprocess.run([sys.executable, "-m", "mypy", *options, *files], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipIf(sys.version_info < (3, 11), "SKIPPED: aioquic needs Python 3.11")
    def test_the_readme_and_the_examples_have_no_type_errors(self):
        lines = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
        self.assertEqual(len(lines), 2)
        with tempfile.TemporaryDirectory() as folder:
            for number, text in enumerate(lines):
                file = pathlib.Path(folder, f"readme{number}.py")
                file.write_text(text, encoding="utf-8")
                self.check(file)
        for example in (PACKAGE / "examples").glob("*.py"):
            self.check(example)


if __name__ == "__main__":
    unittest.main()
