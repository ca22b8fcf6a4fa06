package cli

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"0":                     0,
		"0s":                    0,
		"90s":                   90 * time.Second,
		"1h30m":                 90 * time.Minute,
		"90 min":                90 * time.Minute,
		"1d12h":                 36 * time.Hour,
		"1 day 12:00:00":        36 * time.Hour,
		"36525 days":            36525 * day,
		"36525d":                36525 * day,
		"00:00:00.25":           250 * time.Millisecond,
		"1.5h":                  90 * time.Minute,
		"1.5s":                  1500 * time.Millisecond,
		"250ms":                 250 * time.Millisecond,
		"12us":                  12 * time.Microsecond,
		"12µs":                  12 * time.Microsecond,
		"2w":                    14 * day,
		"2 hours 3 minutes 4 s": 2*time.Hour + 3*time.Minute + 4*time.Second,
		" 1H ":                  time.Hour,
	} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"":                         "a number and a unit",
		"60":                       "write 60s",
		"1.5":                      "write 1.5s",
		"-1h":                      "negative",
		"1 month":                  "no fixed length",
		"1 mon":                    "no fixed length",
		"1mo":                      "no fixed length",
		"1y":                       "no fixed length",
		"1 fortnight":              "unknown unit",
		"1h x":                     "numbers with units",
		"1ns":                      "unknown unit",
		"1e3s":                     "unknown unit",
		"12:61:00":                 "numbers with units",
		"99999999999d":             "too long",
		"999999999999999999:00:00": "too long",
		"99999999999999999999s":    "too long",
	} {
		if got, err := parseDuration(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseDuration(%q) = %v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]string{
		0:                       "0s",
		12 * time.Microsecond:   "12us",
		250 * time.Millisecond:  "250ms",
		1500 * time.Millisecond: "1.5s",
		90 * time.Second:        "1m30s",
		time.Hour:               "1h",
		36 * time.Hour:          "1d12h",
		36525 * day:             "36525d",
		-time.Minute:            "-1m",
	} {
		if got := formatDuration(in); got != want {
			t.Errorf("formatDuration(%d) = %s, want %s", in, got, want)
		}
	}
}

func TestDurationsPrintedCanBeTyped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(36525*day/time.Microsecond)).Draw(t, "microseconds")) * time.Microsecond
		if got, err := parseDuration(formatDuration(d)); err != nil || got != d {
			t.Fatalf("%d prints as %s and reads as %d, %v", d, formatDuration(d), got, err)
		}
	})
}
