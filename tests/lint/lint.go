// Package lint holds the rules for the files under sql/, as programs.
//
// They are of three kinds: what breaks somewhere else (a psql backslash, tern's separator), what is a
// promise of the design (who may be granted what, no subtransaction on the hot path), and what makes
// fifty files read as if one person had written them.
package lint

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxColumns is the width of a line.
const maxColumns = 100

// hotPath lists the functions that, with all they call, must not open a subtransaction: each would
// cost a transaction number and a slot in a cache that a busy server soon spills.
var hotPath = []string{"claim_permit", "hit", "release_permit", "renew_permit"}

// asCaller lists the entry points that run with their caller's rights: what a login may see of other
// sessions is its own right, and the owner of the functions has none of it.
var asCaller = []string{"doctor"}

// Finding is a breach of a rule.
type Finding struct {
	File string
	Line int
	Text string
}

func (f Finding) String() string { return fmt.Sprintf("sql/%s:%d: %s", f.File, f.Line, f.Text) }

// Check applies all rules to the files of sql/, given as a file system.
func Check(fsys fs.FS) ([]Finding, error) {
	c := checker{functions: map[string]function{}, included: map[string]int{}}
	err := fs.WalkDir(fsys, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".sql" {
			return err
		}
		data, err := fs.ReadFile(fsys, file)
		if err != nil {
			return err
		}
		c.files = append(c.files, file)
		c.check(file, string(data))
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.manifest()
	c.subtransactions()
	slices.SortStableFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return c.findings, nil
}

type checker struct {
	files     []string
	findings  []Finding
	functions map[string]function
	included  map[string]int // file → line of install.sql
}

// function is what is known of a function for the rule about its callees.
type function struct {
	calls     []string
	exception int // line of its first exception handler, 0 without one
	file      string
}

func (c *checker) add(file string, line int, format string, args ...any) {
	c.findings = append(c.findings, Finding{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) check(file, src string) {
	c.lines(file, src)
	tokens := lex(src)
	if len(tokens) == 0 || tokens[0].kind != comment || tokens[0].line != 1 {
		c.add(file, 1, "the file begins without a comment that says what it is for")
	}
	tokens = slices.DeleteFunc(tokens, func(t token) bool { return t.kind == comment })
	c.words(file, tokens)
	c.raises(file, tokens)
	if strings.HasPrefix(file, "functions/") && file != "functions/retired.sql" {
		c.function(file, tokens)
	}
}

var (
	include = regexp.MustCompile(`^\{\{ template "([^"]+)" \. \}\}$`)

	// forbidden is text that means something to a program that reads these files.
	forbidden = []struct{ text, why string }{
		{"create above / drop below", "tern splits a migration here"},
		{"tern: disable-tx", "tern would run the file outside a transaction"},
		{"$_pgtle_$", "pg_tle wraps the whole script in this quote"},
	}
)

// lines checks what can be seen without knowing SQL.
func (c *checker) lines(file, src string) {
	if !utf8.ValidString(src) {
		c.add(file, 1, "the file is not UTF-8")
	}
	switch {
	case !strings.HasSuffix(src, "\n"):
		c.add(file, strings.Count(src, "\n")+1, "the last line does not end with a newline")
	case strings.HasSuffix(src, "\n\n"):
		c.add(file, strings.Count(src, "\n"), "the file ends with an empty line")
	}
	for i, line := range strings.Split(src, "\n") {
		at := func(format string, args ...any) { c.add(file, i+1, format, args...) }
		if n := utf8.RuneCountInString(line); n > maxColumns {
			at("%d columns: break the line before column %d", n, maxColumns)
		}
		if strings.ContainsAny(line, "\t\r") {
			at("tab or carriage return: indent with 4 spaces, end lines with LF")
		}
		if strings.TrimRight(line, " ") != line {
			at("blanks at the end of the line")
		}
		for _, f := range forbidden {
			if strings.Contains(line, f.text) {
				at("%q is forbidden: %s", f.text, f.why)
			}
		}
		if !strings.Contains(line, "{{") {
			continue
		}
		m := include.FindStringSubmatch(line)
		switch {
		case m == nil || file != "install.sql":
			// Also in comments and strings: text/template reads neither.
			at(`"{{" begins a template action: only install.sql may, in lines like {{ template "functions/hit.sql" . }}`)
		case c.included[m[1]] != 0:
			at("%s is included twice", m[1])
		default:
			c.included[m[1]] = i + 1
		}
	}
}

// words checks single keywords and pairs of them.
func (c *checker) words(file string, tokens []token) {
	for i, t := range tokens {
		at := func(format string, args ...any) { c.add(file, t.line, format, args...) }
		var last, next token // zero ones are no keyword
		if i > 0 {
			last = tokens[i-1]
		}
		if i+1 < len(tokens) {
			next = tokens[i+1]
		}
		if t.is(`\`) {
			at("a backslash outside a string is a command to psql")
		}
		if t.kind == text && dynamicGrant(tokens[:i], t.text) && file != "policies/grants.sql" {
			at("grants are made in policies/grants.sql alone, where they fit on one screen")
		}
		if t.kind != word {
			continue
		}
		begins := i == 0 || last.is(";") // a statement
		switch lower := strings.ToLower(t.text); {
		case lower != t.text:
			at("%s: keywords and names are written in lower case", t.text)
		case lower == "commit" && !last.is("on"), lower == "rollback", lower == "savepoint",
			t.depth == 0 && begins && (lower == "begin" || lower == "end" || lower == "abort"),
			lower == "start" && next.is("transaction"):
			at("%s: the transaction belongs to whoever applies the file", t.text)
		case lower == "concurrently":
			at("concurrently cannot run in the installer's transaction")
		case lower == "create" && next.is("schema"):
			at("the installer creates the schema, before any file is read")
		case lower == "create" && (next.is("function") || next.is("procedure")):
			at("write create or replace: the file is applied again with every change")
		case lower == "table" && next.is("if"):
			at("create table without if not exists: that word belongs to migrations")
		case lower == "grant" && file != "policies/grants.sql":
			at("grants are made in policies/grants.sql alone, where they fit on one screen")
		}
	}
}

// dynamicGrant tells whether a string is a GRANT to be executed.
func dynamicGrant(before []token, s string) bool {
	if !strings.HasPrefix(strings.TrimSpace(strings.ToLower(s)), "grant ") {
		return false
	}
	n := len(before)
	return n >= 1 && before[n-1].is("execute") ||
		n >= 3 && before[n-1].is("(") && before[n-2].is("format") && before[n-3].is("execute")
}

// raises checks that every error says what happened, by which rule, and what to type next.
func (c *checker) raises(file string, tokens []token) {
	for i, t := range tokens {
		if !t.is("raise") || i+1 == len(tokens) || !tokens[i+1].is("exception") {
			continue
		}
		given := map[string]bool{}
		for _, t := range tokens[i:] {
			if t.is(";") {
				break
			}
			if t.kind == word {
				given[t.text] = true
			}
		}
		for _, option := range []string{"using", "errcode", "message", "detail", "hint"} {
			if !given[option] {
				c.add(file, t.line, "raise exception without %s: write raise exception using errcode = …, "+
					"message = …, detail = …, hint = …", option)
				break
			}
		}
	}
}

// clauses lists the clauses of a function, each spelt out, in this order.
var clauses = []struct {
	name  string
	words []string
}{
	{"returns", []string{"returns"}},
	{"language", []string{"language"}},
	{"volatile, stable or immutable", []string{"volatile", "stable", "immutable"}},
	{"parallel", []string{"parallel"}},
	{"strict or called on null input", []string{"strict", "called"}},
	{"security", []string{"security"}},
}

// function checks a file that holds one.
func (c *checker) function(file string, tokens []token) {
	want := strings.TrimSuffix(path.Base(file), ".sql")
	internal := path.Dir(file) == "functions/internal"
	if internal {
		want = "_" + want // embedded files cannot be called that
	}
	qualified := "pglimit . " + want + " ("

	starts := indexes(tokens, "create or replace function")
	starts = append(starts, indexes(tokens, "create or replace procedure")...)
	if len(starts) != 1 {
		c.add(file, 1, "%d functions: want one, named pglimit.%s", len(starts), want)
		return
	}
	start := starts[0]
	if !matches(tokens[start+4:], qualified) {
		c.add(file, tokens[start].line, "the function is not named after its file, pglimit.%s", want)
		return
	}
	head := tokens[start:]
	head = head[closing(head, slices.IndexFunc(head, func(t token) bool { return t.is("(") })):]
	open := slices.IndexFunc(head, func(t token) bool { return t.is("$") })
	if open < 0 {
		c.add(file, tokens[start].line, "the function has no dollar-quoted body")
		return
	}
	body := head[open:]
	head = head[:open]
	end := slices.IndexFunc(body[1:], func(t token) bool { return t.depth == 0 }) + 1
	security := "definer"
	if internal || slices.Contains(asCaller, want) {
		security = "invoker"
	}
	c.head(file, tokens[start].line, internal, security, head)

	f := function{file: file}
	for i, t := range body[:end] {
		if t.is("exception") && i+1 < end && body[i+1].is("when") && f.exception == 0 {
			f.exception = t.line
		}
		if i+3 < end && matches(body[i:], "pglimit .") && body[i+3].is("(") {
			f.calls = append(f.calls, body[i+2].text)
		}
	}
	c.functions[want] = f

	rest := body[end:]
	about := indexes(rest, "comment on function "+qualified)
	revoke := indexes(rest, "revoke all on function "+qualified)
	closed := false
	if len(revoke) == 1 {
		after := rest[revoke[0]:]
		closed = matches(after[closing(after, slices.IndexFunc(after, func(t token) bool { return t.is("(") })):], "from public ;")
	}
	switch line := tokens[len(tokens)-1].line; {
	case len(about) != 1:
		c.add(file, line, "no comment on function pglimit.%s(…) is '…' below the function", want)
	case !closed:
		c.add(file, line, "no revoke all on function pglimit.%s(…) from public at the end: EXECUTE is everyone's by default", want)
	case revoke[0] < about[0]:
		c.add(file, line, "the order is function, comment, revoke")
	}
}

// head checks the clauses between a function's arguments and its body.
func (c *checker) head(file string, line int, internal bool, security string, head []token) {
	last := -1
	for _, clause := range clauses {
		i := slices.IndexFunc(head, func(t token) bool { return t.kind == word && slices.Contains(clause.words, t.text) })
		switch {
		case i < 0:
			c.add(file, line, "say %s: every clause is explicit", clause.name)
		case i < last:
			c.add(file, head[i].line, "%s is out of order: returns, language, volatility, parallel, strictness, security, set",
				head[i].text)
		default:
			last = i
		}
	}
	sets := slices.IndexFunc(head, func(t token) bool { return t.is("set") })
	switch {
	case internal:
		// It runs under its caller's rights and settings; a definer among them would be a way around
		// the entry points' grants.
		if len(indexes(head, "security invoker")) == 0 {
			c.add(file, line, "an internal function is security invoker")
		}
	case len(indexes(head, "security "+security)) == 0 && security == "invoker":
		c.add(file, line, "it is to run as its caller, security invoker: see asCaller")
	case len(indexes(head, "security "+security)) == 0:
		c.add(file, line, "an entry point is security definer: callers have no right to the tables")
	case sets < 0 || !matches(head[sets:], "set search_path = pg_catalog , pg_temp"):
		c.add(file, line, "an entry point has set search_path = pg_catalog, pg_temp as its first setting: "+
			"a definer must not look names up where its caller says")
	}
}

// manifest checks install.sql against the files.
func (c *checker) manifest() {
	for _, file := range c.files {
		code := strings.HasPrefix(file, "functions/") || strings.HasPrefix(file, "policies/")
		if code && file != "policies/roles.sql" && c.included[file] == 0 {
			c.add("install.sql", 1, "%s is not installed: add {{ template %q . }}", file, file)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(c.included)) {
		switch {
		case !slices.Contains(c.files, file):
			c.add("install.sql", c.included[file], "%s does not exist", file)
		case strings.HasPrefix(file, "tables/"):
			c.add("install.sql", c.included[file], "%s belongs into a migration: install.sql is applied again and again", file)
		case file == "policies/roles.sql":
			c.add("install.sql", c.included[file], "%s belongs to the server: the installer runs it first", file)
		}
	}
}

// subtransactions checks that no function of the hot path catches an error, nor one it calls.
func (c *checker) subtransactions() {
	for _, entry := range hotPath {
		seen := map[string]bool{}
		for todo := []string{entry}; len(todo) > 0; todo = todo[1:] {
			f, found := c.functions[todo[0]]
			if !found || seen[todo[0]] {
				continue
			}
			seen[todo[0]] = true
			if f.exception != 0 {
				c.add(f.file, f.exception, "exception when opens a subtransaction in every %s", entry)
			}
			todo = append(todo, f.calls...)
		}
	}
}

// indexes finds where a sequence of keywords and symbols, separated by blanks, begins.
func indexes(tokens []token, sequence string) []int {
	var found []int
	for i := range tokens {
		if matches(tokens[i:], sequence) {
			found = append(found, i)
		}
	}
	return found
}

// matches tells whether tokens begin with a sequence of keywords and symbols.
func matches(tokens []token, sequence string) bool {
	for _, want := range strings.Fields(sequence) {
		if len(tokens) == 0 || !tokens[0].is(want) {
			return false
		}
		tokens = tokens[1:]
	}
	return true
}

// closing is the index after the parenthesis that closes the one at open.
func closing(tokens []token, open int) int {
	depth := 0
	for i := max(open, 0); i < len(tokens); i++ {
		if tokens[i].is("(") {
			depth++
		}
		if tokens[i].is(")") {
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(tokens)
}
