package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// invisible tells characters that do not show, or that change how others do: controls of both kinds
// and format characters, those that turn the writing direction among them. Spaces are what they look like.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar
}

// printable shows control and other invisible characters as escapes. Holders and subjects may be
// anybody's input: shown as they are, they could move the cursor, fake a row or end a line early.
func printable(s string) string {
	if strings.IndexFunc(s, invisible) < 0 && !strings.ContainsRune(s, '\\') {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\\':
			b.WriteString(`\\`)
		case invisible(r):
			b.WriteString(escapeRune(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapeRune is the escape of a rune in the notation of JSON, which YAML and most languages read.
func escapeRune(r rune) string {
	if r > 0xffff {
		high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// shorten cuts text to n characters, the last of them being dots.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	if n <= 3 {
		return string(runes[:max(n, 0)])
	}
	return string(runes[:n-3]) + "..."
}

// plural is "1 permit", "2 permits".
func plural[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ago tells how far an instant is from now, in one unit: "in 25s", "3m ago". The server's clock set
// the instant and this machine's says now, so it is good for reading only.
func ago(t, now time.Time) string {
	d := t.Sub(now)
	if d > 0 {
		return "in " + rough(d)
	}
	return rough(-d) + " ago"
}

func rough(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// timestamp is RFC 3339 in UTC, at the database's precision and of fixed width, so that it also sorts
// as text.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// quote shows a name in a message.
func quote(s string) string { return `"` + strings.ReplaceAll(printable(s), `"`, `\"`) + `"` }
