package eventlog

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// show is a log in short: the keys with times and costs.
func show(l Log) string {
	var b strings.Builder
	for _, e := range l.Events {
		fmt.Fprintf(&b, "%s %s %d, ", e.At.UTC().Format("2006-01-02T15:04:05.999"), e.Key, e.Cost)
	}
	fmt.Fprintf(&b, "%s, other %d, malformed %d", l.Format, l.Other, l.Malformed)
	return b.String()
}

func TestRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 15, 0, 0, 0, 0, time.UTC)
	const sshd = `Dec 31 23:59:58 host sshd[1]: Invalid user eve from 198.51.100.1
Dec 31 23:59:59 host sshd[1]: Failed password for invalid user eve from 203.0.113.9 from 198.51.100.1 port 22 ssh2
Jan  1 00:00:01 host sshd[2]: message repeated 3 times: [ Failed password for root from 2001:db8::1 port 22 ssh2]
nonsense
2027-01-01T00:00:02.5+01:00 host sshd-session[3]: Failed password for  from 198.51.100.2 port 22 ssh2
`
	const access = `198.51.100.1 - - [17/May/2015:10:05:03 +0200] "GET / HTTP/1.1" 200 12
198.51.100.2 - John Doe [17/May/2015:10:05:04 +0000] "GET /\" HTTP/1.1" 404 - "-" "agent cut o
198.51.100.2 - - [x] "GET / HTTP/1.1" 200 12
`
	for _, tt := range []struct {
		name, log string
		o         Options
		want      string
	}{
		{"SSHD", sshd, Options{}, "2026-12-31T23:59:59 198.51.100.1 1, 2027-01-01T00:00:01 2001:db8::1 1, 2027-01-01T00:00:01 2001:db8::1 1, 2027-01-01T00:00:01 2001:db8::1 1, 2026-12-31T23:00:02.5 198.51.100.2 1, sshd, other 1, malformed 1"},
		{"SSHDUser", sshd, Options{Key: KeyUser}, "2026-12-31T23:59:59 eve from 203.0.113.9 1, 2027-01-01T00:00:01 root 1, 2027-01-01T00:00:01 root 1, 2027-01-01T00:00:01 root 1, sshd, other 2, malformed 1"},
		{"Access", access, Options{}, "2015-05-17T08:05:03 198.51.100.1 1, 2015-05-17T10:05:04 198.51.100.2 1, access, other 0, malformed 1"},
		{"AccessUser", access, Options{Key: KeyUser, Format: FormatAccess}, "2015-05-17T10:05:04 John Doe 1, access, other 1, malformed 1"},
		{"CSV", "key,when,cost,Time\n\"a,b\",x,5,2015-05-17 10:00:00+02\nb,x,,1431856800.25\nc,x,-1,0\n", Options{}, "2015-05-17T08:00:00 a,b 5, 2015-05-17T10:00:00.25 b 1, csv, other 1, malformed 1"},
		{"CSVWithoutHeading", "2015-05-17T10:00:00Z,a\r\n\r\n2015-05-17 10:00:01,b,0", Options{}, "2015-05-17T10:00:00 a 1, 2015-05-17T10:00:01 b 0, csv, other 0, malformed 0"},
		{"JSONL", `{"time":"2015-05-17T10:00:00Z","key":"a","cost":2,"more":[]}` + "\n" + `{"key":"é\n","time":1431856801}` + "\n" + `{"time":"2015-05-17T10:00:00Z"}`, Options{}, "2015-05-17T10:00:00 a 2, 2015-05-17T10:00:01 é\n 1, jsonl, other 0, malformed 1"},
		{"OutOfRange", "0000-01-01T00:00:00Z,a\n0001-01-01T00:00:00+14:00,a\n253402300800,a\n" + "2015-05-17T10:00:00Z," + strings.Repeat("k", 1024) + "\n9999-12-31T23:59:59Z,a\n", Options{Format: FormatCSV}, "9999-12-31T23:59:59 a 1, csv, other 0, malformed 4"},
		{"Empty", "", Options{Format: FormatAuto}, "auto, other 0, malformed 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.o.Now = now
			log, err := Read(strings.NewReader(tt.log), tt.o)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(log); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestBySubject(t *testing.T) {
	t.Parallel()
	log, err := Read(strings.NewReader("2,a,1\n1,b,2\n1,a,3\n2,a,4\n"), Options{Format: FormatCSV})
	if err != nil {
		t.Fatal(err)
	}
	var costs []int64
	for _, events := range log.BySubject() {
		for _, e := range events {
			costs = append(costs, e.Cost)
		}
	}
	if got := fmt.Sprint(costs); got != "[3 1 4 2]" {
		t.Errorf("got %s", got)
	}
}
