package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"
)

func TestFindAddress(t *testing.T) {
	t.Parallel()
	flag, blank := "postgres://flag", " "
	for name, tt := range map[string]struct {
		flag *string
		env  map[string]string
		want address
		err  string
	}{
		"Nothing":          {want: address{from: "the PG* variables"}},
		"Common":           {env: map[string]string{"DATABASE_URL": "postgres://common"}, want: address{"DATABASE_URL", "postgres://common"}},
		"OwnBeatsCommon":   {env: map[string]string{"DATABASE_URL": "postgres://common", "LIMITCTL_DATABASE_URL": "postgres://own"}, want: address{"LIMITCTL_DATABASE_URL", "postgres://own"}},
		"FlagBeatsOwn":     {flag: &flag, env: map[string]string{"DATABASE_URL": "postgres://common", "LIMITCTL_DATABASE_URL": "postgres://own"}, want: address{"--database-url", "postgres://flag"}},
		"EmptyOwnIsNotSet": {env: map[string]string{"DATABASE_URL": "postgres://common", "LIMITCTL_DATABASE_URL": ""}, want: address{"DATABASE_URL", "postgres://common"}},
		// Else a variable that is not set would lead to another database.
		"EmptyFlagIsAnError": {flag: &blank, env: map[string]string{"DATABASE_URL": "postgres://common"}, err: "--database-url is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := findAddress(tt.flag, func(name string) string { return tt.env[name] })
			if tt.err != "" {
				if err == nil || err.Error() != tt.err || explain(err).code != exitUsage {
					t.Fatalf("error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func noEnv(string) string { return "" }

func TestAddressFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://u:s3cret@h:bad/db":                            "port",
		"postgres://u:s3cret@h:70000/db":                          "port",
		"postgres://u:s3/cret@h/db":                               "unexpected place",
		"postgres://u:12/s3cret@h/db":                             "unexpected place",
		"postgres://u:s3@cret@h/db":                               "unexpected place",
		"postgres://u:s3%zzcret@h/db":                             "cannot be parsed",
		"postgres://u:s3cret@[::1/db":                             "brackets",
		"postgres://u:s3cret@h/db?s3cret":                         "question mark",
		"postgres://u:s3cret@h/db?connect_timeout=s3cret":         "connect_timeout",
		"postgres://u:s3cret@h/db?sslmode=s3cret":                 "TLS",
		"postgres://u:s3cret@h/db?target_session_attrs=s3cret":    "target_session_attrs",
		"postgres://u:s3cret@h/db?sslrootcert=/nowhere/root.crt":  "/nowhere/root.crt",
		"postgres://u:s3cret@h/db?pool_max_conns=s3cret":          "pool_*",
		"postgres://u:s3cret@h/db?default_query_exec_mode=s3cret": "default_query_exec_mode",
		"postgres://u:s3cret@h/db?s3%20cret=1":                    "name that cannot be one",
		"mysql://u:s3cret@h/db":                                   "neither",
		"jdbc:postgresql://h/db?user=u&password=s3cret":           "neither",
		"u:s3cret@h/db":                                           "neither",
		"u:s3cret@h/db?sslmode=disable":                           "name that cannot be one",
		"s3cret":                                                  "neither",
		"host=h password=s3cret port=bad":                         "port",
		"host=h password=my s3cret port=1":                        "key=value",
		"host=h password='s3cret":                                 "quote",
		"host=a,b,c port=1,2 password=s3cret":                     "ports than hosts",
		"service=nowhere password=s3cret":                         "service",
		"host=h password=s3cret hostaddr=1.2.3.4":                 "hostaddr",
		"host=h password=s3cret sslcrl=/x":                        "sslcrl",
		"host=h password=s3cret gssencmode=require":               "gssencmode",
		"host=h password=s3cret replication=database":             "replication",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, _, err := address{from: "DATABASE_URL", text: text}.config(noEnv)
			if err == nil {
				t.Fatal("no error")
			}
			b := setup(false)
			if code := report(b.IO, "limitctl permit list", err); code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			told := b.errOut.String()
			if !strings.Contains(told, want) || !strings.Contains(told, "DATABASE_URL") || !strings.Contains(told, "HINT: ") {
				t.Errorf("it says %q, want something with %q", told, want)
			}
			noSecret(t, b)
		})
	}
}

// noSecret fails the test when the password, or half of it, was shown.
func noSecret(t interface {
	Helper()
	Errorf(string, ...any)
}, b *testBundle,
) {
	t.Helper()
	shown := b.out.String() + b.errOut.String()
	for _, part := range []string{"s3cret", "s3", "cret"} {
		if strings.Contains(shown, part) {
			t.Errorf("the password is shown: %s", shown)
			return
		}
	}
}

func TestAddressOfTheEnvironment(t *testing.T) {
	t.Parallel()
	// pgx reads most of PG*, but not these, and would connect elsewhere without a word.
	for _, variable := range []string{"PGHOSTADDR", "PGREQUIREPEER", "PGSSLCRL", "PGSSLCRLDIR"} {
		_, _, err := address{}.config(func(name string) string { return map[string]string{variable: "x"}[name] })
		if err == nil || !strings.Contains(err.Error(), variable) || explain(err).hint == "" {
			t.Errorf("%s: %v", variable, err)
		}
	}
}

func TestAddressParametersLeftOut(t *testing.T) {
	t.Parallel()
	config, notes, err := address{from: "DATABASE_URL", text: "postgres://u@h/db?keepalives=1&keepalives_idle=3&tcp_user_timeout=1" +
		"&load_balance_hosts=disable&gssencmode=prefer&pool_max_conns=7&client_encoding=auto&search_path=&lock_timeout=1s"}.config(noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"left out of DATABASE_URL, as it means nothing here: client_encoding, gssencmode, keepalives, " +
		"keepalives_idle, load_balance_hosts, pool_max_conns, tcp_user_timeout"}; !slices.Equal(notes, want) {
		t.Errorf("notes %q, want %q", notes, want)
	}
	for name := range config.ConnConfig.RuntimeParams {
		// What remains is the server's, and what the environment of this test adds.
		if slices.Contains(droppedParameters, name) || strings.HasPrefix(name, "pool_") {
			t.Errorf("%s would be sent to the server", name)
		}
	}
	if config.ConnConfig.RuntimeParams["lock_timeout"] != "1s" {
		t.Error("a setting of the server was left out")
	}
}

// Whatever is typed, wherever in it the password stands: it is not shown, neither when the address is
// refused nor when the server it seems to name cannot be reached.
func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	noise := rapid.StringOfN(rapid.RuneFrom([]rune("a1:/@?#=&%+,'\\ []\"`\n")), 0, 6, -1)
	rapid.Check(t, func(rt *rapid.T) {
		password := noise.Draw(rt, "before") + "s3cret" + noise.Draw(rt, "behind")
		form := rapid.SampledFrom([]string{
			"postgres://u:%s@h:5432/db", "postgresql://u:%s@h/db?sslmode=disable", "postgres://u:%s@h", "postgres://u:%s@h1,h2:1/db",
			"postgres://h/db?user=u&password=%s", "u:%s@h/db", "host=h user=u password=%s", "host=h password='%s' user=u", "Postgres://u:%s@h/db",
			"password = %s host=h", "mysql://u:%s@h/db",
		}).Draw(rt, "form")
		b := setup(false)
		where := address{from: "DATABASE_URL", text: fmt.Sprintf(form, password)}
		config, notes, err := where.config(noEnv)
		if err == nil {
			for _, note := range notes {
				line(b.IO.ErrOut, "limitctl:", note)
			}
			err = connectProblem(errors.New("connection refused"), config.ConnConfig, where)
		}
		report(b.IO, "limitctl", err)
		if strings.Contains(b.out.String()+b.errOut.String(), "s3cret") {
			rt.Fatalf("%q: %s", where.text, b.errOut)
		}
	})
}

func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		params map[string]string
		want   time.Duration
		found  bool
	}{
		{map[string]string{}, 0, false},
		{map[string]string{"statement_timeout": "1500"}, 1500 * time.Millisecond, true},
		{map[string]string{"statement_timeout": "2min"}, 2 * time.Minute, true},
		{map[string]string{"statement_timeout": "0"}, 0, true},
		{map[string]string{"options": "-c statement_timeout=3s -c lock_timeout=1s"}, 3 * time.Second, true},
		{map[string]string{"options": "--statement-timeout=4000"}, 4 * time.Second, true},
		{map[string]string{"options": "-c lock_timeout=1s"}, 0, false},
		{map[string]string{"statement_timeout": "often"}, 0, false}, // the server will say so
	} {
		if got, found := statementTimeout(tt.params); got != tt.want || found != tt.found {
			t.Errorf("%v: %v %v, want %v %v", tt.params, got, found, tt.want, tt.found)
		}
	}
}

func TestConnectProblem(t *testing.T) {
	t.Parallel()
	where := address{from: "DATABASE_URL", text: "postgres://ops@h1,h2:6432/app?sslmode=prefer"}
	config, _, err := where.config(noEnv)
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("connection refused")
	p := explain(connectProblem(errors.Join(refused, refused), config.ConnConfig, where))
	if want := `cannot connect to database "app" at h1:5432 or h2:6432 as "ops": connection refused`; p.message != want || p.code != exitConnect {
		t.Errorf("%d %s, want %s", p.code, p.message, want)
	}
	wrong := &pgconn.PgError{Code: "28P01", Message: `password authentication failed for user "ops"`}
	p = explain(connectProblem(wrong, config.ConnConfig, where))
	if p.state != "28P01" || p.code != exitConnect || !strings.Contains(p.hint, "PGPASSWORD") {
		t.Errorf("%+v", p)
	}
}
