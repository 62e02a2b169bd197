// Checks that the files are well-formed configurations of Grafana Alloy, by Alloy's own parser, and in its format.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/grafana/alloy/syntax/parser"
	"github.com/grafana/alloy/syntax/printer"
)

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(path, text)
	if err != nil {
		return err
	}
	var formatted bytes.Buffer
	if err := printer.Fprint(&formatted, file); err != nil {
		return err
	}
	formatted.WriteByte('\n')
	if !bytes.Equal(formatted.Bytes(), text) {
		return fmt.Errorf("formatted differently:\n%s", formatted.String())
	}
	return nil
}
