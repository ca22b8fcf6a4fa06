package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCases keeps CASES.md true: all 55 cases in their order, each with a test or with what it waits
// for, every test that is named is there, and every test that says it is a case is named.
func TestCases(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("CASES.md")
	if err != nil {
		t.Fatal(err)
	}
	cited := regexp.MustCompile("`([a-z/]+)\\.(Test[A-Za-z0-9]+)`")
	tests := map[string][]string{} // of a folder
	cases := map[string][]string{} // case → tests of its row
	var order []string
	for line := range strings.Lines(string(list)) {
		if !strings.HasPrefix(line, "| C-") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.TrimSpace(cells[1]) == "" {
			t.Errorf("not four cells: %s", line)
			continue
		}
		name := strings.TrimSpace(cells[0])
		order = append(order, name)
		found := cited.FindAllStringSubmatch(cells[2], -1)
		if len(found) == 0 && strings.TrimSpace(cells[3]) == "" {
			t.Errorf("%s has neither a test nor anything that it waits for", name)
		}
		if strings.Count(cells[2], "`") != 2*len(found) {
			t.Errorf("%s: no test but in code quotes: %s", name, cells[2])
		}
		for _, match := range found {
			folder, test := match[1], match[2]
			if tests[folder] == nil {
				for _, fn := range testFunctions(t, filepath.Join("..", folder)) {
					tests[folder] = append(tests[folder], fn.Name.Name)
				}
			}
			if !slices.Contains(tests[folder], test) {
				t.Errorf("%s: there is no %s in %s", name, test, folder)
			}
			cases[name] = append(cases[name], folder+"."+test)
		}
	}
	for n := range 55 {
		if want := fmt.Sprintf("C-%02d", n+1); n >= len(order) || order[n] != want {
			t.Fatalf("no row for %s where it should be", want)
		}
	}
	if len(order) != 55 {
		t.Errorf("%d rows", len(order))
	}

	says := regexp.MustCompile(`\bC-[0-9]{2}\b`)
	for folder := range tests {
		for _, fn := range testFunctions(t, filepath.Join("..", folder)) {
			for _, name := range says.FindAllString(fn.Doc.Text(), -1) {
				if test := folder + "." + fn.Name.Name; !slices.Contains(cases[name], test) {
					t.Errorf("%s says it is %s, whose row does not name it", test, name)
				}
			}
		}
	}
}

// testFunctions parses the tests of a folder.
func testFunctions(t *testing.T, folder string) (found []*ast.FuncDecl) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("no tests in %s: %v", folder, err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				found = append(found, fn)
			}
		}
	}
	return found
}
