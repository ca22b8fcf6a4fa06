package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// walk calls fn with every command there is.
func walk(cmd *cobra.Command, fn func(*cobra.Command)) {
	fn(cmd)
	for _, child := range cmd.Commands() {
		walk(child, fn)
	}
}

func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	walk(NewRootCmd(setup(false).Factory), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		b := setup(false)
		if code := b.run(append(strings.Fields(path)[1:], "--help")...); code != exitOK {
			t.Errorf("%s --help: exit code %d", path, code)
		}
		help := b.out.String()
		if !strings.Contains(help, "Exit codes:\n") {
			t.Errorf("%s --help has no exit codes", path)
		}
		if cmd.Long == "" || cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: want a short help without a full stop, and a long one", path)
		}
		for l := range strings.Lines(cmd.Long) {
			if len(l) > 111 {
				t.Errorf("%s: %d characters in a line of its help: %s", path, len(l), l)
			}
		}
		if cmd.HasSubCommands() && cmd.HasParent() {
			return
		}
		// Two examples, each of a command there is.
		examples := 0
		for l := range strings.Lines(cmd.Example) {
			if !strings.HasPrefix(strings.TrimSpace(l), "limitctl ") {
				continue
			}
			examples++
			typed, _, _ := strings.Cut(strings.TrimSpace(l), "|")
			found, _, err := NewRootCmd(b.Factory).Find(strings.Fields(typed)[1:])
			if err != nil || found.HasSubCommands() {
				t.Errorf("%s: example %s: %v", path, l, err)
			}
		}
		if examples < 2 {
			t.Errorf("%s: %d examples, want two", path, examples)
		}
	})
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"permit lst":                              "limitctl permit: there is no command lst\nHINT: did you mean limitctl permit list?\n",
		"premit list":                             "limitctl: there is no command premit\nHINT: did you mean limitctl permit?\n",
		"permit frobnicate":                       "limitctl permit: there is no command frobnicate\nHINT: limitctl permit --help lists the commands\n",
		"frobnicate --help":                       "limitctl: there is no command frobnicate\nHINT: limitctl --help lists the commands\n",
		"permit lst -h":                           "limitctl permit: there is no command lst\nHINT: did you mean limitctl permit list?\n",
		"help frobnicate":                         "limitctl help: there is no command frobnicate\nHINT: limitctl --help lists the commands\n",
		"help permit lst":                         "limitctl help: there is no command lst\nHINT: did you mean limitctl permit list?\n",
		"--color never premit list --help":        "limitctl: there is no command premit\nHINT: did you mean limitctl permit?\n",
		"permit list --dsn=postgres://u:s3cret@h": "limitctl permit list: unknown flag: --dsn\nHINT: limitctl permit list --help lists the flags\n",
		"permit list --dsn postgres://u:s3cret@h": "limitctl permit list: unknown flag: --dsn\nHINT: limitctl permit list --help lists the flags\n",
		"permit list postgres://u:s3cret@h": "limitctl permit list: too many arguments: it takes no argument\n" +
			"HINT: limitctl permit list [flags]; a connection string goes behind --database-url\n",
		"postgres://u:s3cret@h permit list": "limitctl: the argument is not a command\n" +
			"HINT: limitctl --help; a connection string goes behind --database-url\n",
		"permit password=s3cret": "limitctl permit: the argument is not a command\n" +
			"HINT: limitctl permit --help; a connection string goes behind --database-url\n",
		"permit list --limit postgres://u:s3cret@h": "limitctl permit list: --limit \"postgres://***\": it is a whole number\n" +
			"HINT: limitctl permit list --help lists the flags\n",
		"permit show password=s3cret": "limitctl permit show: a permit id is a whole number: \"password=***\"\n" +
			"HINT: limitctl permit list shows the ids\n",
		"permit list -ps3cret": "limitctl permit list: unknown shorthand flag: 'p'\nHINT: limitctl permit list --help lists the flags\n",
		"installation set-cap -5": "limitctl installation set-cap: a negative number: numbers and durations are 0 or more\n" +
			"HINT: limitctl installation set-cap <number> [flags]\n",
		"counter list --limit login": "limitctl counter list: --limit \"login\": it is a whole number\n" +
			"HINT: --limit is how many rows; the limit is the argument: limitctl counter list <limit>\n",
		"permit list --=s3cret":      "limitctl permit list: bad flag syntax\nHINT: limitctl permit list --help lists the flags\n",
		"purge run --all --every 1m": "limitctl purge run: these flags exclude each other: --all, --every\nHINT: limitctl purge run --help\n",
		"permit list --database-url=": "limitctl permit list: --database-url is empty\n" +
			"HINT: leave it out to connect as LIMITCTL_DATABASE_URL, DATABASE_URL or PG* say\n",
		"limit list --color loud": "limitctl limit list: --color \"loud\": it is one of auto, always, never\nHINT: limitctl limit list --help lists the flags\n",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			b := setup(false)
			if strings.Contains(args, "--database-url") {
				b.Factory.Client = b.connector.client
			}
			b.want(t, b.run(strings.Fields(args)...), exitUsage, "", want)
			noSecret(t, b)
		})
	}
}

func TestPluralNounsWorkToo(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.client.permits = permitsOf(1)
	b.want(t, b.run("permits", "ls", "-o", "name"), exitOK, "1\n", "")
	if !b.client.closed {
		t.Error("the connection was left open")
	}
}

func TestColor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flag string
		env  map[string]string
		tty  bool
		want bool
	}{
		"Terminal":           {flag: "auto", tty: true, want: true},
		"Pipe":               {flag: "auto"},
		"NoColor":            {flag: "auto", tty: true, env: map[string]string{"NO_COLOR": "1"}},
		"EmptyNoColorIsNone": {flag: "auto", tty: true, env: map[string]string{"NO_COLOR": ""}, want: true},
		"DumbTerminal":       {flag: "auto", tty: true, env: map[string]string{"TERM": "dumb"}},
		"Force":              {flag: "auto", env: map[string]string{"CLICOLOR_FORCE": "1"}, want: true},
		"ForceZero":          {flag: "auto", env: map[string]string{"CLICOLOR_FORCE": "0"}},
		"NoColorBeatsForce":  {flag: "auto", env: map[string]string{"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}},
		"AlwaysBeatsNoColor": {flag: "always", env: map[string]string{"NO_COLOR": "1"}, want: true},
		"NeverBeatsForce":    {flag: "never", tty: true, env: map[string]string{"CLICOLOR_FORCE": "1"}},
		"CliColorZero":       {flag: "auto", tty: true, env: map[string]string{"CLICOLOR": "0"}},
	} {
		streams, _, _, _ := testIO(tt.tty)
		streams.setColor(tt.flag, func(name string) string { return tt.env[name] })
		if streams.color != tt.want {
			t.Errorf("%s: colour %v, want %v", name, streams.color, tt.want)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"see postgres://u:p@h/db there": "see postgres://*** there",
		"postgres://user@host:5432/db":  "postgres://user@host:5432/db",
		"https://example.com/a:b":       "https://example.com/a:b",
		"password=x user=y":             "password=*** user=y",
		"PGPASSWORD = 'a b' user=y":     "PGPASSWORD = *** user=y",
		"sslpassword=x&y=z":             "sslpassword=***&y=z",
		"nothing here":                  "nothing here",
	} {
		if got := redact(in); got != want {
			t.Errorf("redact(%q) = %q, want %q", in, got, want)
		}
	}
}
