package cli

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

var units = map[string]time.Duration{
	"us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond,
	"s":  time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day,
	"w": 7 * day, "week": 7 * day, "weeks": 7 * day,
}

var (
	quantity  = regexp.MustCompile(`^\s*(\d+)(\.\d+)?\s*([a-zµμ]+)`)
	clockTime = regexp.MustCompile(`^\s*(\d+):([0-5]\d):([0-5]\d)(\.\d{1,6})?\s*$`)
)

// parseDuration reads what people write (90s, 1h30m, 1d12h, "90 min"), what PostgreSQL prints
// ("1 day 12:00:00") and so also what formatDuration does. A day is 24 hours, as everywhere in
// pglimit; months and years have no fixed length.
func parseDuration(s string) (time.Duration, error) {
	rest := strings.ToLower(strings.TrimSpace(s))
	if rest == "" {
		return 0, errors.New("a duration is a number and a unit, such as 90s, 1h30m or 1d12h")
	}
	if strings.HasPrefix(rest, "-") {
		return 0, errors.New("a duration cannot be negative")
	}
	if _, err := strconv.ParseFloat(rest, 64); err == nil && rest != "0" {
		return 0, fmt.Errorf("it has no unit: write %ss for seconds", rest)
	}
	if rest == "0" {
		return 0, nil
	}

	var sum time.Duration
	add := func(n int64, unit time.Duration) error {
		if n > (math.MaxInt64-int64(sum))/int64(unit) {
			return errors.New("it is too long: pglimit knows at most 36525d")
		}
		sum += time.Duration(n) * unit
		return nil
	}
	for strings.TrimSpace(rest) != "" {
		if m := clockTime.FindStringSubmatch(rest); m != nil {
			for i, unit := range []time.Duration{time.Hour, time.Minute, time.Second} {
				n, err := strconv.ParseInt(m[i+1], 10, 64)
				if err != nil {
					return 0, errors.New("it is too long: pglimit knows at most 36525d")
				}
				if err := add(n, unit); err != nil {
					return 0, err
				}
			}
			if err := add(fraction(m[4], time.Second), time.Microsecond); err != nil {
				return 0, err
			}
			break
		}
		m := quantity.FindStringSubmatch(rest)
		if m == nil {
			return 0, errors.New("a duration is numbers with units, such as 90s, 1h30m or 1d12h")
		}
		unit, ok := units[m[3]]
		switch {
		case strings.HasPrefix(m[3], "mo"), strings.HasPrefix(m[3], "y"):
			return 0, errors.New("months and years have no fixed length: write days, such as 30d")
		case !ok:
			return 0, fmt.Errorf("unknown unit %q: the units are us, ms, s, m, h, d and w", m[3])
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return 0, errors.New("it is too long: pglimit knows at most 36525d")
		}
		if err := add(n, unit); err != nil {
			return 0, err
		}
		if err := add(fraction(m[2], unit), time.Microsecond); err != nil {
			return 0, err
		}
		rest = rest[len(m[0]):]
	}
	return sum, nil
}

// fraction is how many microseconds ".5" of a unit are.
func fraction(s string, unit time.Duration) int64 {
	if s == "" {
		return 0
	}
	f, _ := strconv.ParseFloat("0"+s, 64)
	return int64(math.Round(f * float64(unit/time.Microsecond)))
}

// formatDuration prints a duration the way parseDuration reads it: 1d12h, 1h30m, 1.5s.
func formatDuration(d time.Duration) string {
	if d < 0 {
		return "-" + formatDuration(-d)
	}
	if d < time.Second && d > 0 {
		return strings.Replace(d.String(), "µs", "us", 1)
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}} {
		if n := d / u.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.size
		}
	}
	if d > 0 || b.Len() == 0 {
		b.WriteString(strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s")
	}
	return b.String()
}
