package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// durationFlag is a time.Duration in our notation, see parseDuration.
type durationFlag struct{ d *time.Duration }

func (f durationFlag) Set(s string) (err error) { *f.d, err = parseDuration(s); return err }
func (f durationFlag) String() string           { return formatDuration(*f.d) }
func (f durationFlag) Type() string             { return "duration" }

func durationVar(flags *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	flags.Var(durationFlag{d}, name, usage)
}

// enumFlag is one of a few words.
type enumFlag struct {
	value   *string
	allowed []string
}

func (f enumFlag) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("it is one of %s", strings.Join(f.allowed, ", "))
	}
	*f.value = s
	return nil
}
func (f enumFlag) String() string { return *f.value }
func (f enumFlag) Type() string   { return "string" }

// enumVar adds a flag that is one of allowed, and its completion.
func enumVar(cmd *cobra.Command, flags *pflag.FlagSet, v *string, name, shorthand, value, usage string, allowed ...string) {
	*v = value
	flags.VarP(enumFlag{v, allowed}, name, shorthand, usage+": "+strings.Join(allowed, "|"))
	// Fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// change is a field that was named on the command line: to a value, or to none.
type change[T any] struct {
	given bool
	value *T // nil: none
}

// or is the new value of a field whose value is old.
func (c change[T]) or(old *T) *T {
	if c.given {
		return c.value
	}
	return old
}

// noneFlag is a flag whose value may be "none", for fields that may be NULL.
type noneFlag[T any] struct {
	change *change[T]
	parse  func(string) (T, error)
	print  func(T) string
	kind   string
}

func (f noneFlag[T]) Set(s string) error {
	if s == "none" {
		*f.change = change[T]{given: true}
		return nil
	}
	v, err := f.parse(s)
	if err != nil {
		return fmt.Errorf("%w; or none", err)
	}
	*f.change = change[T]{given: true, value: &v}
	return nil
}

func (f noneFlag[T]) String() string {
	if f.change == nil || f.change.value == nil {
		return ""
	}
	return f.print(*f.change.value)
}
func (f noneFlag[T]) Type() string { return f.kind }

func numberOrNoneVar(flags *pflag.FlagSet, c *change[int64], name, usage string) {
	flags.Var(noneFlag[int64]{c, parseCount, func(n int64) string { return strconv.FormatInt(n, 10) }, "number|none"}, name, usage)
}

func durationOrNoneVar(flags *pflag.FlagSet, c *change[time.Duration], name, usage string) {
	flags.Var(noneFlag[time.Duration]{c, parseDuration, formatDuration, "duration|none"}, name, usage)
}

// parseCount reads a count or a cap.
func parseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("it is a whole number from 0 on")
	}
	return n, nil
}

// countFlag is a number from 0 on that has no default.
type countFlag struct{ n **int64 }

func (f countFlag) Set(s string) error {
	n, err := parseCount(s)
	if err != nil {
		return err
	}
	*f.n = &n
	return nil
}

func (f countFlag) String() string {
	if f.n == nil || *f.n == nil {
		return ""
	}
	return strconv.FormatInt(**f.n, 10)
}
func (f countFlag) Type() string { return "number" }

// optionalString is a string flag that tells "" from not given.
type optionalString struct{ s **string }

func (f optionalString) Set(s string) error { *f.s = &s; return nil }
func (f optionalString) String() string {
	if f.s == nil || *f.s == nil {
		return ""
	}
	return **f.s
}
func (f optionalString) Type() string { return "string" }

// optionalDuration is a duration flag that tells its default from not given.
type optionalDuration struct{ d **time.Duration }

func (f optionalDuration) Set(s string) error {
	d, err := parseDuration(s)
	if err == nil {
		*f.d = &d
	}
	return err
}

func (f optionalDuration) String() string {
	if f.d == nil || *f.d == nil {
		return ""
	}
	return formatDuration(**f.d)
}
func (f optionalDuration) Type() string { return "duration" }

// isOurs tells our own kinds of flag, whose errors are made for people.
func isOurs(v pflag.Value) bool {
	switch v.(type) {
	case countFlag, durationFlag, enumFlag, instantFlag, noneFlag[int64], noneFlag[time.Duration], noneFlag[time.Time],
		optionalDuration, percentFlag, windowFlag:
		return true
	}
	return false
}

// tenantFilterVar adds --tenant to a list, where it filters.
func tenantFilterVar(flags *pflag.FlagSet, tenant **string) {
	flags.Var(optionalString{tenant}, "tenant", `only this tenant; "" is the empty one (default all)`)
}

// tenantVar adds --tenant to a verb about one thing.
func tenantVar(flags *pflag.FlagSet, tenant *string) {
	flags.StringVar(tenant, "tenant", "", "whose it is (default the empty tenant, whose rows are for all)")
}

// exactArgs takes as many arguments as there are names, and says which one is missing. It does not
// repeat one that is too many: a connection string in the wrong place holds a password.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usageError("missing argument: "+names[len(args)], "limitctl "+strings.TrimPrefix(cmd.UseLine(), "limitctl "))
		case len(args) > len(names):
			return tooMany(cmd, len(names))
		}
		return nil
	}
}

// maxArgs takes up to n arguments.
func maxArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return tooMany(cmd, n)
		}
		return nil
	}
}

func tooMany(cmd *cobra.Command, n int) error {
	takes := "no argument"
	if n > 0 {
		takes = "at most " + plural(n, "argument")
	}
	hint := cmd.UseLine()
	if n == 0 {
		hint += "; a connection string goes behind --database-url"
	}
	return usageError("too many arguments: it takes "+takes, hint)
}
