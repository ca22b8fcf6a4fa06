package lint_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pglimit/pglimit/tests/lint"
)

func TestSQL(t *testing.T) {
	t.Parallel()

	findings, err := lint.Check(os.DirFS("../../sql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range findings {
		t.Error(finding)
	}
}

const (
	entry = `-- Counts.
create or replace function pglimit.hit(subject text, per interval default '1 day')
returns bigint
language plpgsql
volatile
parallel unsafe
called on null input
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pglimit._check(subject);
    return 1;   -- a comment's "Exception when" is no code
end
$$;

comment on function pglimit.hit(text, interval) is
    'Counts it''s hits.';

revoke all on function pglimit.hit(text, interval) from public;
`
	// The one that runs as its caller.
	looker = `-- Looks.
create or replace function pglimit.doctor()
returns bigint
language sql
stable
parallel unsafe
called on null input
security invoker
set search_path = pg_catalog, pg_temp
as $$
select 1
$$;

comment on function pglimit.doctor() is
    'Looks.';

revoke all on function pglimit.doctor() from public;
`
	helper = `-- Refuses.
create or replace function pglimit._check(subject text)
returns void
language plpgsql
immutable
parallel safe
strict
security invoker
as $body$
begin
    raise exception using
        errcode = 'PGL01',
        message = e'it\'s wrong',
        detail = 'A rule with $1 and a \ in it.',
        hint = 'Type this.';
end
$body$;

comment on function pglimit._check(text) is
    'internal: refuses';

revoke all on function pglimit._check(text) from public;
`
)

// clean returns a small tree that breaks no rule.
func clean() map[string]string {
	return map[string]string{
		"install.sql": `-- All that can be applied again.
{{ template "functions/retired.sql" . }}
{{ template "functions/internal/check.sql" . }}
{{ template "functions/hit.sql" . }}
{{ template "functions/doctor.sql" . }}
{{ template "policies/grants.sql" . }}
`,
		"functions/doctor.sql":         looker,
		"functions/hit.sql":            entry,
		"functions/internal/check.sql": helper,
		"functions/retired.sql":        "-- Old signatures.\ndrop function if exists pglimit.hit(text);\n",
		"policies/grants.sql":          "-- Who may do what.\ngrant execute on function pglimit.hit(text, interval) to pglimit_app;\n",
		"policies/roles.sql":           "-- The roles.\ndo $$ begin create role a; exception when duplicate_object then null; end $$;\n",
		"tables/counters.sql":          "-- Counts.\ncreate temporary table pglimit.counters (\"Key\" text) on commit drop;\n",
	}
}

func TestRules(t *testing.T) {
	t.Parallel()

	const hit, check, table = "functions/hit.sql", "functions/internal/check.sql", "tables/counters.sql"
	const doctor = "functions/doctor.sql"
	for _, tt := range []struct {
		name     string
		file     string
		old, new string // what is replaced; all of the file when old is empty
		want     string // the finding, "" for none
	}{
		{name: "Clean"},
		{"BackslashCommand", table, "create", "\\set x 1\ncreate", `sql/tables/counters.sql:2: a backslash outside a string is a command to psql`},
		{"BeginAndCommit", table, "create", "begin;\ncreate", `sql/tables/counters.sql:2: begin: the transaction`},
		{"CarriageReturn", table, "Counts.", "Counts.\r", `:1: tab or carriage return`},
		{"ColumnsCountCharacters", table, "Counts.", strings.Repeat("é", 97), ""},
		{"CommentMissing", hit, "comment on function pglimit.hit(text, interval) is\n    'Counts it''s hits.';\n\n", "", `no comment on function pglimit.hit(…)`},
		{"CommentOfAnother", hit, "comment on function pglimit.hit(", "comment on function pglimit.hits(", `no comment on function pglimit.hit(…)`},
		{"CommitInBody", hit, "return 1;", "commit;", `sql/functions/hit.sql:13: commit: the transaction`},
		{"Concurrently", table, "create temporary", "create index concurrently", `concurrently cannot run`},
		{"CreateSchema", table, "create temporary", "create schema a; create temporary", `the installer creates the schema`},
		{"CreateWithoutReplace", hit, "create or replace", "create", `write create or replace`},
		{"DefinerMissing", hit, "security definer", "security invoker", `an entry point is security definer`},
		{"DefinerThatIsNone", doctor, "security invoker", "security definer", `it is to run as its caller`},
		{"DefinerInside", check, "security invoker", "security definer", `an internal function is security invoker`},
		{"EmptyFile", table, "", "", `sql/tables/counters.sql:1: the file begins without a comment`},
		{"EmptyLineAtEnd", table, "drop;\n", "drop;\n\n", `ends with an empty line`},
		{"ErrcodeMissing", check, "        errcode = 'PGL01',\n", "", `sql/functions/internal/check.sql:11: raise exception without errcode`},
		{"ExceptionInCallee", check, "    raise exception", "exception when others then raise exception", `sql/functions/internal/check.sql:11: exception when opens a subtransaction in every hit`},
		{"ExceptionOnHotPath", hit, "return 1;", "return 1; exception when others then null;", `sql/functions/hit.sql:13: exception when opens a subtransaction in every hit`},
		{"FileWithoutHeader", hit, "-- Counts.\n", "", `the file begins without a comment`},
		{"Grant", hit, "revoke all", "grant execute on function pglimit.hit(text) to public;\nrevoke all", `grants are made in policies/grants.sql alone`},
		{"GrantExecuted", hit, "return 1;", "execute format('grant %I to a', b);", `grants are made in policies/grants.sql alone`},
		{"GrantInHint", check, "'Type this.'", "'grant pglimit_app to you'", ""},
		{"HintMissing", check, "',\n        hint = 'Type this.'", "'", `raise exception without hint`},
		{"IncludeElsewhere", hit, "-- Counts.", `-- {{ template "functions/retired.sql" . }}`, `"{{" begins a template action`},
		{"IncludeMissing", "install.sql", "{{ template \"functions/hit.sql\" . }}\n", "", `sql/install.sql:1: functions/hit.sql is not installed`},
		{"IncludeOfNothing", "install.sql", "functions/hit.sql", "functions/hits.sql", `functions/hits.sql does not exist`},
		{"IncludeOfRoles", "install.sql", "-- All", "{{ template \"policies/roles.sql\" . }}\n-- All", `policies/roles.sql belongs to the server`},
		{"IncludeOfTable", "install.sql", "grants.sql\" . }}\n", "grants.sql\" . }}\n{{ template \"tables/counters.sql\" . }}\n", `sql/install.sql:7: tables/counters.sql belongs into a migration`},
		{"IncludeTwice", "install.sql", "grants.sql\" . }}\n", "grants.sql\" . }}\n{{ template \"functions/hit.sql\" . }}\n", `sql/install.sql:7: functions/hit.sql is included twice`},
		{"IncludeWithOtherAction", "install.sql", "-- All", "-- {{ if . }} All", `"{{" begins a template action`},
		{"LanguageOutOfOrder", hit, "language plpgsql\nvolatile", "volatile\nlanguage plpgsql", `volatile is out of order`},
		{"LongLine", table, "Counts.", strings.Repeat("x", 98), `sql/tables/counters.sql:1: 101 columns`},
		{"NewlineMissing", table, "drop;\n", "drop;", `sql/tables/counters.sql:2: the last line does not end with a newline`},
		{"ParallelMissing", hit, "parallel unsafe\n", "", `say parallel`},
		{"PgTLEQuote", table, "Counts.", "$_pgtle_$", `pg_tle wraps the whole script`},
		{"RaiseWithText", check, "raise exception using", "raise exception 'wrong' using", ""},
		{"RaiseBare", hit, "return 1;", "raise exception 'wrong';", `sql/functions/hit.sql:13: raise exception without using`},
		{"RevokeBeforeComment", hit, "comment on", "revoke all on function pglimit.hit(text, interval) from public;\ncomment on", `no revoke all`},
		{"RevokeFromAnother", hit, "from public", "from pglimit_app", `no revoke all`},
		{"RevokeMissing", hit, "revoke all on function pglimit.hit(text, interval) from public;\n", "", `no revoke all`},
		{"SearchPathMissing", hit, "set search_path = pg_catalog, pg_temp\n", "", `as its first setting`},
		{"SearchPathOfTheCaller", doctor, "set search_path = pg_catalog, pg_temp\n", "", `as its first setting`},
		{"SearchPathWithPublic", hit, "pg_catalog, pg_temp", "public, pg_temp", `as its first setting`},
		{"Shouting", hit, "return 1", "RETURN 1", `sql/functions/hit.sql:13: RETURN: keywords and names`},
		{"ShoutingInString", check, "'Type this.'", "'TYPE THIS.'", ""},
		{"Tab", table, "\"Key\"", "\t\"Key\"", `sql/tables/counters.sql:2: tab or carriage return`},
		{"TableIfNotExists", table, "temporary table", "temporary table if not exists", `create table without if not exists`},
		{"TernDisableTx", table, "Counts.", "-- tern: disable-tx ----", `tern would run the file outside`},
		{"TernSeparator", table, "Counts.", "-- create above / drop below ----", `tern splits a migration here`},
		{"TrailingBlanks", table, "Counts.", "Counts. ", `blanks at the end of the line`},
		{"TwoFunctions", hit, "comment on", strings.TrimPrefix(entry, "-- Counts.\n") + "comment on", `2 functions: want one, named pglimit.hit`},
		{"WrongName", hit, "replace function pglimit.hit(", "replace function pglimit.hits(", `not named after its file, pglimit.hit`},
		{"WrongSchema", hit, "replace function pglimit.hit(", "replace function public.hit(", `not named after its file, pglimit.hit`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			files := clean()
			if tt.file != "" {
				src := files[tt.file]
				if tt.old == "" {
					src = ""
				} else if !strings.Contains(src, tt.old) {
					t.Fatalf("%s does not contain %q", tt.file, tt.old)
				}
				files[tt.file] = strings.Replace(src, tt.old, tt.new, 1)
			}
			fsys := fstest.MapFS{}
			for name, src := range files {
				fsys[name] = &fstest.MapFile{Data: []byte(src)}
			}
			findings, err := lint.Check(fsys)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, finding := range findings {
				got = append(got, finding.String())
			}
			all := strings.Join(got, "\n")
			if tt.want == "" && all != "" || !strings.Contains(all, tt.want) {
				t.Errorf("got:\n%s\nwant: %s", all, tt.want)
			}
		})
	}
}
