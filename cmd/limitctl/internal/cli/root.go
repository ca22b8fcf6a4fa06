// Package cli is the command line of limitctl: each command is an options struct, a function that
// parses flags into it, and one that runs.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// interruptGrace is how long a command has to end by itself. A call to the database that is under way
// does not end with its context.
const interruptGrace = 500 * time.Millisecond

// Main runs limitctl with the streams and the environment of the process, and returns the exit code.
func Main(ctx context.Context, args []string) int {
	return run(ctx, newFactory(systemIO(), os.Getenv), args)
}

func run(ctx context.Context, f *Factory, args []string) int {
	root := NewRootCmd(f)
	root.SetArgs(args)
	mistaken := helpOfWhatIsThere(root)
	command := "limitctl"
	done := make(chan error, 1)
	go func() {
		cmd, err := root.ExecuteContextC(ctx)
		if cmd != nil {
			command = cmd.CommandPath()
			err = cmp.Or(usageOf(cmd, err), mistaken())
		}
		done <- err
	}()
	select {
	case err := <-done:
		return report(f.IO, command, err)
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return report(f.IO, command, err)
	case <-time.After(interruptGrace):
		line(f.IO.ErrOut, "limitctl:", "interrupted; a change that was under way may still have been made")
		return exitInterrupted
	}
}

// usageOf marks what cobra itself finds wrong, which has no type to tell it by.
func usageOf(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	message := err.Error()
	for _, sign := range []string{"if any flags in the group ", "required flag(s) "} {
		if strings.HasPrefix(message, sign) {
			if _, set, found := strings.Cut(message, "none of the others can be; "); found {
				message = "these flags exclude each other: --" + strings.NewReplacer("[", "", "]", "", " were all set", "", " ", ", --").Replace(set)
			}
			return usageError(message, cmd.CommandPath()+" --help")
		}
	}
	return err
}

// NewRootCmd returns the whole command tree.
func NewRootCmd(f *Factory) *cobra.Command {
	var color string
	cmd := &cobra.Command{
		Use:   "limitctl",
		Short: "Inspect and operate pglimit, the rate limiter inside PostgreSQL",
		Long: `Inspect and operate pglimit, the rate limiter and permit leaser inside PostgreSQL.

The database is the one that --database-url names, or else LIMITCTL_DATABASE_URL, or else DATABASE_URL.
What these leave out, or all of it, comes from PGHOST, PGUSER and the like, the service file and
~/.pgpass, as in psql. The login needs a role of pglimit: pglimit_monitor for list and show,
pglimit_operator for the rest, and for schema the right to create in the database.

A terminal gets tables. A pipe gets one row a line, tab-separated, without a heading, in full, times as
RFC 3339 in UTC. -o chooses json, jsonl, yaml, csv and more, with the names of the SQL columns.
Durations are written as 90s, 1h30m or 1d12h.`,
		Example: `  # Install pglimit, and a limit
  limitctl schema up
  limitctl limit set login_attempt --max-hits 5 --per 15m

  # Watch who holds permits
  limitctl permit list --watch`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownVerb,
		RunE:          help,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			f.IO.setColor(color, f.getenv)
			f.connector.command = strings.TrimPrefix(cmd.CommandPath(), "limitctl ")
			return nil
		},
	}
	flags := cmd.PersistentFlags()
	enumVar(cmd, flags, &color, "color", "", "auto", "colour", "auto", "always", "never")
	flags.Var(optionalString{&f.connector.url}, "database-url", "where pglimit is: a postgres:// URL or key=value pairs")
	flags.Var(optionalDuration{&f.connector.timeout}, "timeout", "how long one statement may take; 0 is without end (default 10s)")
	cmd.SetFlagErrorFunc(flagError)
	cmd.SetIn(f.IO.In)
	cmd.SetOut(f.IO.Out)
	cmd.SetErr(f.IO.ErrOut)
	cmd.SetUsageTemplate(usageTemplate)
	cmd.SetHelpTemplate(helpTemplate)

	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	cmd.AddCommand(
		newBlockCmd(f),
		newChangeCmd(f),
		newCounterCmd(f),
		newDemoCmd(f, nil),
		newDoctorCmd(f, nil),
		newEndpointCmd(f),
		newHoldCmd(f),
		newInstallationCmd(f),
		newLimitCmd(f),
		newPermitCmd(f),
		newPurgeCmd(f),
		newSchemaCmd(f),
		newSignInCmd(f),
		newSimulateCmd(f, nil),
		newVersionCmd(f, nil),
	)
	return cmd
}

// nounCmd is a command that only holds others. In the plural it is the same.
func nounCmd(noun, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:     noun + " <command>",
		Aliases: []string{noun + "s"},
		Short:   short,
		Long:    strings.TrimSpace(long),
		Args:    unknownVerb,
		RunE:    help,
	}
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// helpOfWhatIsThere has the help of a command that is not there fail like the command itself. cobra
// would print the help of the command before it and call that a success, which hides a misspelt word
// from scripts. The returned function tells, after the run, what was wrong.
func helpOfWhatIsThere(root *cobra.Command) (mistaken func() error) {
	root.InitDefaultHelpCmd()
	if verb, _, err := root.Find([]string{"help"}); err == nil {
		verb.Args = func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || !cmd.HasSubCommands() {
				return err
			}
			return unknownVerb(cmd, rest)
		}
	}
	var mistake error
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			if mistake = unknownVerb(cmd, cmd.Flags().Args()); mistake != nil {
				return
			}
		}
		show(cmd, args)
	})
	return func() error { return mistake }
}

// unknownVerb is for commands that only hold others. The argument is quoted only when it is a word: a
// connection string in the wrong place holds a password.
func unknownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	word := args[0]
	if strings.ContainsAny(word, ":/=@ ") {
		return usageError("the argument is not a command", cmd.CommandPath()+" --help; a connection string goes behind --database-url")
	}
	hint := cmd.CommandPath() + " --help lists the commands"
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(word); len(similar) > 0 {
		for i, s := range similar {
			similar[i] = cmd.CommandPath() + " " + s
		}
		hint = "did you mean " + strings.Join(similar, ", or ") + "?"
	}
	return usageError("there is no command "+printable(word), hint)
}

// flagError puts what pflag says in our words. It quotes values, so only what our own flags say about
// a value is kept.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	hint := cmd.CommandPath() + " --help lists the flags"
	if errors.As(err, &invalid) {
		flag := invalid.GetFlag()
		reason := "it is a whole number"
		if flag.Value.Type() == "bool" {
			reason = "it is true or false"
		}
		if cause := errors.Unwrap(err); cause != nil && isOurs(flag.Value) {
			reason = cause.Error()
		}
		if flag.Name == "limit" && strings.Contains(cmd.Use, "<limit>") {
			hint = "--limit is how many rows; the limit is the argument: " + cmd.CommandPath() + " <limit>"
		}
		return usageError(fmt.Sprintf("--%s %s: %s", flag.Name, quote(invalid.GetValue()), reason), hint)
	}
	// Behind this pflag repeats what was typed in one word with the flag: -ps3cret, to some programs a password.
	message, _, _ := strings.Cut(err.Error(), " in -")
	if strings.HasPrefix(message, "bad flag syntax") {
		message = "bad flag syntax"
	}
	if digit := strings.TrimPrefix(message, "unknown shorthand flag: '"); digit != message && digit[0] >= '0' && digit[0] <= '9' {
		return usageError("a negative number: numbers and durations are 0 or more", cmd.UseLine())
	}
	return usageError(message, hint)
}
