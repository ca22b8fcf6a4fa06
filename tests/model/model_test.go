// Package model_test has spin check permits.pml, a model of the permit protocol, exhaustively.
package model_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestModel: every interleaving of three calls of claim, renew and release by three sessions, with
// lapses, purges and a cap that is lowered, keeps the properties of the model, and no session waits
// for ever. That the check can find a fault is shown by the mutations, each of which it must find.
func TestModel(t *testing.T) {
	t.Parallel()
	t.Run("Holds", func(t *testing.T) {
		t.Parallel()
		out := check(t, "CALLS=3")
		wantHeld(t, out)
		// of every statement but the ends, to which the endless processes never come
		for _, line := range regexp.MustCompile(`(?m)^\t.*, state \d+, .*$`).FindAllString(out, -1) {
			if !strings.HasSuffix(line, `"-end-"`) {
				t.Errorf("no call comes to %s", strings.TrimSpace(line))
			}
		}
	})
	t.Run("HoldsWithoutLapses", func(t *testing.T) {
		t.Parallel()
		wantHeld(t, check(t, "CALLS=3", "TIME_STANDS_STILL"))
	})
	for mutation, fault := range map[string]string{
		"MUT_LANE_CREATION_LOCKS":          "invalid end state",
		"MUT_LAPSED_IS_FREE":               "live[2]",
		"MUT_NO_LAPSE_RECHECK":             "assertion violated  !(live[x])",
		"MUT_NO_RENEWAL_RECHECK":           "assertion violated alive",
		"MUT_NO_RETIRE":                    "live[2]",
		"MUT_NUMBER_BEFORE_LOCK":           "assertion violated (permit>number[x])",
		"MUT_PURGE_SINGLE_LANE":            "assertion violated (there[",
		"MUT_PURGE_WITHOUT_CREATION_LOCK":  "assertion violated (there[",
		"MUT_MARK_UNSEEN":                  "live[2]",
		"MUT_RETIRE_WITHOUT_CREATION_LOCK": "invalid end state",
	} {
		t.Run(mutation, func(t *testing.T) {
			t.Parallel()
			out := check(t, "CALLS=3", mutation)
			if !strings.Contains(out, fault) {
				t.Errorf("not found: %s\n%s", fault, out)
			}
		})
	}
}

// wantHeld fails the test unless the whole model was searched and no fault found.
func wantHeld(t *testing.T, out string) {
	t.Helper()
	if !strings.Contains(out, "errors: 0") {
		t.Errorf("the model does not hold:\n%s", out)
	}
	for _, cut := range []string{"max search depth too small", "out of memory", "MEMLIM", "Search not completed"} {
		if strings.Contains(out, cut) {
			t.Errorf("not the whole search: %s\n%s", cut, out)
		}
	}
}

// check searches the model, with macros defined, up to the first fault. It returns what is printed.
func check(t *testing.T, macros ...string) (out string) {
	t.Helper()
	model, err := filepath.Abs("permits.pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(program string, args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s (tests/setup/system.sh cc spin installs what is missing): %v\n%s", program, err, out)
		}
		return string(out)
	}
	var defines []string
	for _, macro := range macros {
		defines = append(defines, "-D"+macro)
	}
	run("spin", append(defines, "-a", model)...)
	// memory in MB; SAFETY: no cycles are looked for, since a retry is a wait in the model
	run("cc", "-w", "-O2", "-DSAFETY", "-DCOLLAPSE", "-DNOBOUNDCHECK", "-DMEMLIM=1800", "-o", "pan", "pan.c")
	return run(filepath.Join(dir, "pan"), "-m10000", "-w22")
}
