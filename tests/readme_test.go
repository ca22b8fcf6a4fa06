package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// readmeLogins are the logins that the README's prompts name, by role. Its admin is a login of the
// test's own, for the tests' installer also owns the database and may do more.
var readmeLogins = map[string]string{
	"ops":  "pglimit_operator",
	"shop": "pglimit_app",
}

// readmeStable are the columns whose values do not depend on the clock or the server.
var readmeStable = []string{
	"action", "actual", "admitted", "after", "ahead", "allowed", "before", "cap", "charged", "check_name", "debt", "delay", "enqueued", "event", "granted", "held", "holder", "in_installation", "in_use", "known", "limit_name",
	"limit_version", "max_hits", "ordinal", "per", "quota", "reason", "released", "remaining", "renewed", "settled", "share", "state", "step", "subject", "there", "time_bound", "used", "verdict", "version", "why",
}

// readmeUnstable are the functions that return one value which does. Versions do not: the examples are one session.
var readmeUnstable = []string{"raise_epoch", "set_installation_cap"}

var (
	readmeBlock  = regexp.MustCompile("(?ms)^```psql ?(\\w*)\n(.*?)^```$")
	readmePrompt = regexp.MustCompile(`^(\w+)[=-]\*?> (.*)$`)
	readmeID     = regexp.MustCompile(`\b\d{18}\b`)
)

// readme is the text of the README, of the reference and of the recipes, whose examples go on with its session.
func readme(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, file := range []string{"../README.md", "../docs/sql.md", "../docs/recipes.md"} {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(part)
	}
	return text.String()
}

// The psql sessions of the README run, in order, and answer what it shows. A word after psql names
// another session of the same login.
func TestReadmeSessions(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := &readmeRun{t: t, db: db, conns: map[string]*pgx.Conn{}, notices: map[string][]string{}, ids: map[string]string{}}
	for _, block := range readmeBlock.FindAllStringSubmatch(readme(t), -1) {
		var login, sql string
		var shown []string
		for _, line := range strings.Split(strings.TrimSuffix(block[2], "\n"), "\n") {
			prompt := readmePrompt.FindStringSubmatch(line)
			switch {
			case prompt == nil:
				shown = append(shown, line)
			case isStatement(sql):
				s.run(login, block[1], sql, shown)
				login, sql, shown = prompt[1], prompt[2], nil
			default:
				login, sql = prompt[1], strings.TrimPrefix(sql+"\n"+prompt[2], "\n")
			}
		}
		s.run(login, block[1], sql, shown)
	}
	if s.statements < 20 {
		t.Errorf("only %d statements found: has the form of the examples changed?", s.statements)
	}
}

// isStatement tells whether what was typed so far is one.
func isStatement(sql string) bool {
	return strings.HasSuffix(sql, ";") || strings.HasSuffix(sql, `\gx`)
}

type readmeRun struct {
	t          *testing.T
	db         *dbtest.DB
	conns      map[string]*pgx.Conn
	notices    map[string][]string
	ids        map[string]string // permit_id in the README → here
	statements int
}

func (s *readmeRun) conn(login, session string) *pgx.Conn {
	s.t.Helper()
	key := login + " " + session
	if conn := s.conns[key]; conn != nil {
		return conn
	}
	role, ok := readmeLogins[login]
	if !ok && login != "admin" {
		s.t.Fatalf("the README's login %q is none of this test's", login)
	}
	config, err := pgx.ParseConfig(s.db.URL(role))
	if err != nil {
		s.t.Fatal(err)
	}
	if login == "admin" {
		config.User = s.admin()
	}
	config.RuntimeParams["search_path"] = "public"
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		s.notices[key] = append(s.notices[key], n.Severity+":  "+n.Message)
	}
	conn, err := pgx.ConnectConfig(s.t.Context(), config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	s.conns[key] = conn
	return conn
}

// admin makes a login with exactly the rights that the README tells somebody to give it.
func (s *readmeRun) admin() string {
	s.t.Helper()
	login := s.db.Name + "_admin"
	config, err := pgx.ParseConfig(s.db.URL(""))
	if err != nil {
		s.t.Fatal(err)
	}
	mustExec(s.t, s.db.Super(), fmt.Sprintf(`create role %s login createrole password '%s'; grant create on database %s to %[1]s`,
		login, config.Password, s.db.Name))
	s.t.Cleanup(func() {
		super, err := pgx.Connect(context.Background(), s.db.SuperURL())
		if err != nil {
			s.t.Error(err)
			return
		}
		defer super.Close(context.Background())
		if _, err := super.Exec(context.Background(), fmt.Sprintf("drop owned by %s cascade; drop role %[1]s", login)); err != nil {
			s.t.Error(err)
		}
	})
	return login
}

// run runs one statement and compares the answer with what the README shows.
func (s *readmeRun) run(login, session, sql string, shown []string) {
	s.t.Helper()
	if !isStatement(sql) {
		s.t.Fatalf("not a statement: %q", sql)
	}
	s.statements++
	expanded := strings.HasSuffix(sql, `\gx`)
	here := readmeID.ReplaceAllStringFunc(strings.TrimSuffix(sql, `\gx`), func(id string) string {
		if own := s.ids[id]; own != "" {
			return own
		}
		return id
	})

	key := login + " " + session
	conn := s.conn(login, session)
	s.notices[key] = nil
	results, err := conn.PgConn().Exec(s.t.Context(), here).ReadAll()
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		s.notices[key] = append(s.notices[key], pgErr.Severity+":  "+pgErr.Message)
	} else if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	var want []string
	for _, line := range shown {
		if strings.HasPrefix(line, "ERROR:") || strings.HasPrefix(line, "WARNING:") || strings.HasPrefix(line, "NOTICE:") {
			want = append(want, line)
		}
	}
	if !slices.Equal(s.notices[key], want) {
		s.t.Errorf("%s\nsays %q, the README shows %q", sql, s.notices[key], want)
	}
	if err != nil || len(results) == 0 || len(results[0].FieldDescriptions) == 0 {
		return
	}

	result := results[0]
	names, rows := readmeTable(shown, expanded)
	if names == nil { // a value without its heading
		name := result.FieldDescriptions[0].Name
		if got := string(result.Rows[0][0]); !slices.Contains(readmeUnstable, name) && !slices.Equal(shown, []string{got}) {
			s.t.Errorf("%s\nis %q, the README shows %q", sql, got, shown)
		}
		return
	}
	for i, field := range result.FieldDescriptions {
		if i >= len(names) || names[i] != field.Name {
			s.t.Errorf("%s\nhas the column %s, the README shows %q", sql, field.Name, names)
			return
		}
	}
	if len(rows) != len(result.Rows) {
		s.t.Errorf("%s\nhas %d rows, the README shows %d", sql, len(result.Rows), len(rows))
		return
	}
	for r, row := range rows {
		for i, name := range names {
			got := string(result.Rows[r][i])
			if (name == "permit_id" || name == "ticket" || name == "hold_id") && row[i] != "" {
				if own, ok := s.ids[row[i]]; ok && own != got {
					s.t.Errorf("%s\nhas %s %s, which the README showed for another one before", sql, name, row[i])
				}
				s.ids[row[i]] = got
			}
			if slices.Contains(readmeStable, name) && got != row[i] {
				s.t.Errorf("%s\nhas %s = %q, the README shows %q", sql, name, got, row[i])
			}
		}
	}
}

// readmeTable reads psql's output of one statement: column names, and rows of texts.
func readmeTable(lines []string, expanded bool) (names []string, rows [][]string) {
	cells := func(line string) []string {
		parts := strings.Split(line, "|")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		return parts
	}
	for i := range lines {
		switch {
		case expanded && strings.HasPrefix(lines[i], "-["):
			rows = append(rows, nil)
		case expanded && len(rows) > 0:
			name, value, _ := strings.Cut(lines[i], "|")
			if len(rows) == 1 {
				names = append(names, strings.TrimSpace(name))
			}
			rows[len(rows)-1] = append(rows[len(rows)-1], strings.TrimSpace(value))
		case !expanded && strings.HasPrefix(lines[i], "---") && i > 0:
			names = cells(lines[i-1])
		case !expanded && names != nil:
			rows = append(rows, cells(lines[i]))
		}
	}
	return names, rows
}

// Every public function is in the reference.
func TestReadmeNamesEveryFunction(t *testing.T) {
	t.Parallel()
	text := readme(t)
	for _, name := range mustStrings(t, dbtest.New(t).Conn("pglimit_monitor"), `
		select distinct p.proname::text
		from pg_catalog.pg_proc p
		where p.pronamespace = 'pglimit'::regnamespace and p.proname not like '\_%'`) {
		if !strings.Contains(text, "pglimit."+name+"(") {
			t.Errorf("neither README.md nor docs/sql.md has pglimit.%s(", name)
		}
	}
}

// The README's Go program compiles.
func TestReadmeProgramCompiles(t *testing.T) {
	t.Parallel()
	program := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindStringSubmatch(readme(t))
	if program == nil {
		t.Fatal("README.md has no Go program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	// Named as a file it is compiled within this module, wherever it lies.
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
