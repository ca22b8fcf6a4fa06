package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// consent is how a destructive verb gets permission: --yes, or a question on a terminal.
type consent struct {
	DryRun bool
	Yes    bool
}

func (c *consent) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&c.DryRun, "dry-run", false, "say what would be done, and do nothing")
	flags.BoolVarP(&c.Yes, "yes", "y", false, "do not ask")
}

// check fails before anything is looked up when nobody could be asked.
func (c *consent) check(streams *IOStreams) error {
	if c.Yes || c.DryRun || streams.canAsk() {
		return nil
	}
	return usageError("this asks before it acts, and there is no terminal to ask on",
		"--yes does it without asking, --dry-run says what would be done")
}

// ask puts a question that yes answers.
func (c *consent) ask(streams *IOStreams, question string) error {
	if c.Yes {
		return nil
	}
	answer, err := prompt(streams, question+" [y/N] ")
	if err != nil {
		return err
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	return errCancelled
}

// askFor wants a name typed, for what cannot be had back.
func (c *consent) askFor(streams *IOStreams, question, name string) error {
	if c.Yes {
		return nil
	}
	answer, err := prompt(streams, question+"\nType "+name+" to go on: ")
	if err != nil {
		return err
	}
	if answer != name {
		return errCancelled
	}
	return nil
}

func prompt(streams *IOStreams, question string) (string, error) {
	if !streams.canAsk() {
		return "", errCancelled
	}
	fmt.Fprint(streams.ErrOut, question)
	answer, err := bufio.NewReader(streams.In).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(streams.ErrOut) // the line that the end of input left open
		return "", errCancelled
	}
	return strings.TrimSpace(answer), nil
}
