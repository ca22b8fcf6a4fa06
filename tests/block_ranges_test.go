package tests

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

const rangesAreOver = blocksAreOver + "; update pglimit.block_ranges set blocked_until = clock_timestamp()"

// TestBlockRange: the range decides from the next call on, of an address that was counted and of one that is new, with a
// limit given or looked up, whatever the limit's algorithm and mode; others are not touched, and a counter goes back to
// hit's straight way when it is over.
func TestBlockRange(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{
		"Given": "", "Plain": "'l', 3, '1 hour'", "Sliding": "'l', 3, '1 hour', algorithm => 'sliding_window'",
		"Bucket": "'l', 3, '1 hour', algorithm => 'token_bucket'", "Calendar": "'l', 3, '1 month', algorithm => 'calendar'",
		"Durable": "'l', 3, '1 hour', durable => true", "Shadow": "'l', 3, '1 hour', mode => 'shadow'", "Off": "'l', 3, '1 hour', mode => 'off'",
	} {
		for _, limitName := range []string{"l", "*"} {
			t.Run(name+limitName, func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
				args := ", 3, '1 hour'"
				if limit != "" {
					args = ""
					mustExec(t, operator, "select pglimit.set_limit("+limit+")")
				}
				call := func(f, subject, more string) string { return f + "('l', '" + subject + "'" + args + more + ")" }
				block := func(more string) {
					t.Helper()
					mustExec(t, operator, fmt.Sprintf("select pglimit.block_range('%s', '203.0.113.99/24'%s)", limitName, more))
				}
				allowed := map[string]string{"Off": "off"}[name]
				if allowed == "" {
					allowed = "allowed"
				}
				left := func(n int64) int64 {
					if name == "Off" {
						return 3
					}
					return n
				}
				const was, fresh, other, nobody = "203.0.113.7", "::ffff:203.0.113.8", "203.0.114.7", "203.0.113.7x"

				for _, subject := range []string{was, other, nobody} {
					wantHit(t, app, call("hit", subject, ""), allowed, left(2))
				}
				block(", '1 hour', 'it scrapes'")
				for _, subject := range []string{was, fresh} {
					for range 2 {
						mustExec(t, app, "begin")
						for _, more := range []string{"", ", cost => 9", ", cost => 0"} {
							if r := wantBlocked(t, app, call("hit", subject, more)); r.RetryAfter == nil || r.Quota != 3 {
								t.Errorf("%+v", r)
							}
							wantBlocked(t, app, call("peek", subject, more))
						}
						if id := mustScan[*string](t, app, "select pg_current_xact_id_if_assigned()::text"); id != nil {
							t.Error("a refusal draws a transaction id")
						}
						mustExec(t, app, "commit")
					}
				}
				wantHit(t, app, call("hit", other, ""), allowed, left(1))
				wantHit(t, app, call("hit", nobody, ""), allowed, left(1))
				wantHit(t, app, call("hit", "203.0.112.1", ""), allowed, left(2))
				mustExec(t, app, "select pglimit.forget('l', '"+was+"')")
				wantBlocked(t, app, call("hit", was, ""))
				block("")
				if r := wantBlocked(t, app, call("hit", was, "")); r.RetryAfter != nil {
					t.Errorf("for ever, and %+v", r)
				}

				// over by itself, or lifted: the next hit counts, and takes the stamp off
				mustExec(t, db.System(), rangesAreOver)
				for i := range int64(2) {
					wantHit(t, app, call("hit", was, ""), allowed, left(2-i))
					wantHit(t, app, call("hit", fresh, ""), allowed, left(2-i))
				}
				block("")
				wantBlocked(t, app, call("hit", was, ""))
				lift := fmt.Sprintf("select pglimit.unblock_range('%s', '::ffff:203.0.113.0/120')", limitName)
				if !mustScan[bool](t, operator, lift) || mustScan[bool](t, operator, lift) {
					t.Error("a block is lifted once")
				}
				wantHit(t, app, call("hit", was, ""), allowed, left(0))
				wantHit(t, app, call("hit", fresh, ""), allowed, left(0))
				if name == "Plain" || name == "Given" {
					wantStamped(t, db, 0, 5)
				}
				if n := mustScan[int](t, db.System(), "select count(*) from pglimit.blocks"); n != 0 {
					t.Errorf("%d rows of blocks are left", n)
				}
			})
		}
	}
}

// TestBlockRangeSpellings: an address is in the network however it is written, before and after its first hit, and what
// is no address is in none.
func TestBlockRangeSpellings(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for i, step := range []struct {
		network string
		in, out []string
	}{
		{
			"203.0.113.0/24",
			[]string{"203.0.113.0", "203.0.113.255", "203.0.113.7/32", "203.000.113.007", "::ffff:203.0.113.7", "::FFFF:CB00:7107", "0:0:0:0:0:ffff:cb00:7107", "0000::ffff:203.0.113.7/128"},
			[]string{"203.0.112.255", "203.0.114.0", "203.0.113.7/24", "203.0.113.0/24", " 203.0.113.7", "203.0.113.7 ", "203.0.113", "203.0.113.256", "203.0.113.7:80", "[203.0.113.7]", "203.0.113.7%eth0", "::203.0.113.7", "64:ff9b::203.0.113.7", "user 203.0.113.7", "203.0.113.7.1", "203.0.113.7,203.0.113.8"},
		},
		{
			"2001:DB8::/32",
			[]string{"2001:db8::1", "2001:DB8:0:0:0:0:0:1", "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::192.0.2.1", "2001:db8::1%eth0", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128", "2001:db8::1%eth0/128"},
			[]string{"2001:db7:ffff::", "2001:db9::", "2001:db8::/32", "2001:db8:", "2001:db8:::1", "2001:db8::1::2", "2001:db8:1:2:3:4:5:6:7", "2001:db8::g", "[2001:db8::1]", "2001:db8::1%", "2001:db8::1/127"},
		},
		{"fe80::/10", []string{"fe80::1%eth0", "FEBF::1%en-1", "fE80:0:0:0:0:0:0:1%2"}, []string{"fec0::1%eth0", "fe80::1%a%b"}},
		{"::1/128", []string{"::1", "0:0:0:0:0:0:0:1", "0000:0000:0000:0000:0000:0000:0000:0001", "0::1"}, []string{"::2", "1", "0.0.0.1", "::"}},
		{"::ffff:198.51.100.0/118", []string{"198.51.100.1", "198.51.103.255", "::ffff:198.51.101.1"}, []string{"198.51.104.0", "::198.51.100.1"}},
		{"198.51.100.9", []string{"198.51.100.9", "::ffff:c633:6409"}, []string{"198.51.100.90", "198.51.100.8"}},
		{"0.0.0.0/0", []string{"0.0.0.0", "255.255.255.255", "010.1.2.3", "::ffff:9.9.9.9"}, []string{"::1", "2001:db8::1", "a", "12345"}},
		{"::/0", []string{"::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "abcd::", "Abcd::1", "64:ff9b::9.9.9.9"}, []string{"9.9.9.9", "::ffff:9.9.9.9", "a:b", "cafe:"}},
		{"172.16.0.0/12", []string{"172.16.0.1", "172.31.255.255", "0172.020.1.1"}, []string{"172.15.255.255", "172.32.0.0", "172.16.0"}},
	} {
		limit := fmt.Sprint("l", i)
		hit := func(subject string) string { return fmt.Sprintf("hit('%s', '%s', 1000000, '1 hour')", limit, subject) }
		all := slices.Concat(step.in, step.out)
		for i, subject := range all {
			if i%2 == 0 { // those that have a counter
				wantHit(t, app, hit(subject), "allowed", 999999)
			}
		}
		if _, err := operator.Exec(t.Context(), "select pglimit.block_range($1, $2::inet)", limit, step.network); err != nil {
			t.Fatal(step.network, ": ", err)
		}
		for i, subject := range all {
			if i < len(step.in) {
				wantBlocked(t, app, hit(subject))
			} else if !mustScan[bool](t, app, "select allowed from pglimit."+hit(subject)) {
				t.Errorf("%s refuses %s", step.network, subject)
			}
		}
		stampedThere := mustScan[int](t, db.System(), fmt.Sprintf(`select count(*) from pglimit.counters where key like e'\x1f%s\x1f%%' and reset_at is null`, limit))
		if want := (len(step.in) + 1) / 2; stampedThere != want {
			t.Errorf("%s: %d counters are stamped, want %d", step.network, stampedThere, want)
		}
	}
}

// randomAddress is an address, of few networks, in any spelling.
func randomAddress(r *rand.Rand) (netip.Addr, string) {
	if r.IntN(2) == 0 {
		a := netip.AddrFrom4([4]byte{byte(r.IntN(3) * 100), byte(r.IntN(256)), byte(r.IntN(2) * 7), byte(r.IntN(256))})
		octets := strings.Split(a.String(), ".")
		switch r.IntN(6) {
		case 0:
			for i := range octets {
				octets[i] = strings.Repeat("0", r.IntN(3)) + octets[i]
			}
			return a, strings.Join(octets, ".")
		case 1:
			return a, a.String() + "/32"
		case 2:
			return a, a.String() + "."
		case 3:
			return a, netip.AddrFrom16(a.As16()).StringExpanded()
		case 4:
			return a, strings.ToUpper(netip.AddrFrom16(a.As16()).String())
		}
		return a, a.String()
	}
	var b [16]byte
	for i := range b {
		if r.IntN(3) == 0 {
			b[i] = byte(r.IntN(256))
		}
	}
	a := netip.AddrFrom16(b)
	s := a.String()
	switch r.IntN(4) {
	case 0:
		s = a.StringExpanded()
	case 1: // as Java writes it
		groups := strings.Split(a.StringExpanded(), ":")
		for i, g := range groups {
			if groups[i] = strings.TrimLeft(g, "0"); groups[i] == "" {
				groups[i] = "0"
			}
		}
		s = strings.Join(groups, ":")
	case 2: // with a tail in IPv4
		groups := strings.Split(a.StringExpanded(), ":")
		s = fmt.Sprintf("%s:%d.%d.%d.%d", strings.Join(groups[:6], ":"), b[12], b[13], b[14], b[15])
	}
	mixed := []byte(s)
	for i := range mixed {
		if r.IntN(3) == 0 {
			mixed[i] = strings.ToUpper(string(mixed[i]))[0]
		}
	}
	return a.Unmap(), string(mixed) + []string{"", "", "%eth0", "/128", "%1/128"}[r.IntN(5)]
}

// TestAddress: what is taken for an address is what PostgreSQL takes for one, unless it is broken, and nothing makes it
// fail.
func TestAddress(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	r := rand.New(rand.NewPCG(1, 2))
	var texts, addresses []string
	for range 3000 {
		a, text := randomAddress(r)
		texts, addresses = append(texts, text), append(addresses, a.String())
	}
	system := db.Conn("pglimit_system")
	var wrong int
	if err := system.QueryRow(t.Context(), `select count(*) from unnest($1::text[], $2::inet[]) u (text, address)
		where pglimit._address(u.text) is distinct from u.address`, texts, addresses).Scan(&wrong); err != nil || wrong > 0 {
		t.Errorf("%d spellings are not understood: %v", wrong, err)
	}
	const alphabet = "0123456789abcdefABCDEF:./%: g-+"
	for i, text := range texts {
		b := []byte(text)
		for range 1 + r.IntN(3) {
			at, c := r.IntN(len(b)+1), alphabet[r.IntN(len(alphabet))]
			switch {
			case r.IntN(3) == 0 && at < len(b):
				b = slices.Delete(b, at, at+1)
			case r.IntN(2) == 0 && at < len(b):
				b[at] = c
			default:
				b = slices.Insert(b, at, c)
			}
		}
		texts[i] = string(b)
	}
	texts = append(texts, []string{
		"", ":", "::", ":::", ".", "/", "/32", "%", "::%a", "1", "1.2", "1:2", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::3:4:5:6:7:8", "1:2:3:4:5:6::1.2.3.4", "1:2:3:4:5::1.2.3.4", "::1.2.3.4:5",
		"1:2:3:4:5:6:7:1.2.3.4", "1.2.3.4::", "::1.2.3.04", "::ffff:1.2.3.4/32", "1.2.3.4/0032", "1.2.3.4//32", "1.2.3.4/", "1.2.3.4..", "00001::", "１.2.3.4", "1.2.3.4\n", "1.2.3.4\n/32", "::1\n",
	}...)
	mustExec(t, system, `
		create function pg_temp.reference(subject text) returns inet language plpgsql as $$
		declare
			v inet;
		begin
			begin
				v := case when subject ~ '^[^%]*:' then regexp_replace(subject, '%[^/%]+(/128)?$', '\1') else subject end::inet;
			exception when invalid_text_representation then
				return null;
			end;
			if masklen(v) <> (case family(v) when 4 then 32 else 128 end) then
				return null;
			end if;
			return case when v << '::ffff:0:0/96' then '0.0.0.0'::inet + (v - '::ffff:0:0'::inet) else v end;
		end
		$$`)
	rows, err := system.Query(t.Context(), `select u.text, pglimit._address(u.text)::text, pg_temp.reference(u.text)::text from unnest($1::text[]) u (text)
		where pglimit._address(u.text) is distinct from pg_temp.reference(u.text)`, texts)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	var got, want *string
	if _, err := pgx.ForEachRow(rows, []any{&text, &got, &want}, func() error {
		// of IPv6 PostgreSQL takes broken ones too, such as ::ffff:192.0.2 and 1::2:
		host, _, _ := strings.Cut(strings.TrimSuffix(text, "/128"), "%")
		if _, err := netip.ParseAddr(host); err == nil || got != nil || !strings.Contains(text, ":") {
			t.Errorf("%q: %v, PostgreSQL says %v", text, got, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := system.QueryRow(t.Context(), "select count(pglimit._address(u.text)) from unnest($1::text[]) u (text)", texts).Scan(&n); err != nil || n < 100 || n > 2500 {
		t.Errorf("of %d texts %d are addresses: %v", len(texts), n, err)
	}
}

// TestAddressSpans: however an address is written, it lies in a span of every network that holds it.
func TestAddressSpans(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	r := rand.New(rand.NewPCG(3, 4))
	var texts, networks []string
	for range 4000 {
		a, text := randomAddress(r)
		texts, networks = append(texts, text), append(networks, netip.PrefixFrom(a, r.IntN(a.BitLen()+1)).Masked().String())
	}
	var missed, spared int
	if err := db.System().QueryRow(t.Context(), `
		select
			count(*) filter (where u.network >>= pglimit._address(u.text) and not u.inside),
			count(*) filter (where not u.inside)
		from (
			select u.text, u.network, exists (
				select
				from pglimit._address_spans(u.network) s, unnest(s.firsts, s.ends) x (first, before)
				where u.text collate "C" >= x.first and u.text collate "C" < x.before
			) as inside
			from (
				select text, network from unnest($1::text[], $2::cidr[]) u (text, network)
				union all
				select text, lead(network) over (order by text) from unnest($1::text[], $2::cidr[]) u (text, network)
			) u
		) u`, texts, networks).Scan(&missed, &spared); err != nil || missed > 0 || spared < 500 {
		t.Errorf("%d are in no span, %d of %d are spared: %v", missed, spared, 2*len(texts), err)
	}
}

// TestFindBlock: of many nested ranges, at the limit and at every limit, it is the one that ends last, as reading all of
// them says. One that is over, of another tenant or limit counts nothing.
func TestFindBlock(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	r := rand.New(rand.NewPCG(5, 6))
	system := db.Conn("pglimit_system")
	for round := range 12 {
		var networks, limits, addresses []string
		var ends []*int
		few := []int{3, 20, 400}[round%3]
		for range few {
			a, _ := randomAddress(r)
			bits := r.IntN(a.BitLen() + 1)
			if r.IntN(2) == 0 { // as in lists
				bits = a.BitLen() - r.IntN(12)
			}
			networks = append(networks, netip.PrefixFrom(a, bits).Masked().String())
			limits = append(limits, []string{"l", "*", "m"}[r.IntN(3)])
			end := r.IntN(2000) - 200
			if ends = append(ends, &end); r.IntN(20) == 0 {
				ends[len(ends)-1] = nil
			}
		}
		for range 300 {
			_, text := randomAddress(r)
			if r.IntN(2) == 0 { // inside one, or beside it
				a := netip.MustParsePrefix(networks[r.IntN(few)]).Addr()
				if r.IntN(3) == 0 {
					a = a.Prev()
				}
				if text = a.String(); !a.IsValid() {
					text = "nobody"
				}
			}
			addresses = append(addresses, text)
		}
		tenant := fmt.Sprint("t", round)
		if _, err := system.Exec(t.Context(), `insert into pglimit.block_ranges (tenant, limit_name, network, blocked_until, updated_at, updated_by)
			select distinct on (2, 3) $1, u.limit_name, u.network, '2090-01-01'::timestamptz + u.seconds * interval '1 s', now(), '' from unnest($2::text[], $3::cidr[], $4::int[]) u (limit_name, network, seconds)`,
			tenant, limits, networks, ends); err != nil {
			t.Fatal(err)
		}
		var wrong, blocked int
		if err := system.QueryRow(t.Context(), `
			select count(*) filter (where (f.tenant is not null, f.blocked_until) is distinct from (b.n > 0, b.until)), count(*) filter (where b.n > 0)
			from unnest($2::text[]) u (subject)
			cross join lateral pglimit._find_block($1, 'l', u.subject, '2090-01-01') f
			cross join lateral (
				select count(*) as n, case when count(*) = count(r.blocked_until) then max(r.blocked_until) end as until
				from pglimit.block_ranges r
				where r.tenant = $1 and r.limit_name in ('l', '*') and r.network >>= pglimit._address(u.subject) and coalesce(r.blocked_until > '2090-01-01', true)
			) b`, tenant, addresses).Scan(&wrong, &blocked); err != nil || wrong > 0 || blocked == 0 {
			t.Errorf("of %d ranges: %d of %d answers are wrong, %d are blocked: %v", few, wrong, len(addresses), blocked, err)
		}
	}
}

// TestBlockRangeIsExact: no other tenant or limit; * is every limit, those that come later too, of its tenant. The
// longest of several holds, of the subject's own block too, and lifting one leaves the others.
func TestBlockRangeIsExact(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	hit := func(limit, subject, tenant string) string {
		return fmt.Sprintf("hit('%s', e'%s', 1000, '1 hour', tenant => '%s')", limit, subject, tenant)
	}
	limits, tenants := []string{"a", "a b", "a!", "b", "ab", "~"}, []string{"", "t", "t u"}
	subjects := []string{"10.0.0.1", "10.0.1.1", `s\x1f10.0.0.1`}
	for _, tenant := range tenants {
		for _, limit := range limits {
			for _, subject := range subjects {
				wantHit(t, app, hit(limit, subject, tenant), "allowed", 999)
			}
		}
	}
	mustExec(t, operator, "select pglimit.block_range('*', '10.0.0.0/24', tenant => 't'); select pglimit.block_range('a', '10.0.1.0/24', '1 hour')")
	wantStamped(t, db, len(limits)+1, len(tenants)*len(limits)*len(subjects)-len(limits)-1)
	for _, tenant := range tenants {
		for _, limit := range append(limits, "later") {
			for _, subject := range subjects {
				if call := hit(limit, subject, tenant); tenant == "t" && subject == "10.0.0.1" || tenant == "" && limit == "a" && subject == "10.0.1.1" {
					wantBlocked(t, app, call)
				} else if !mustScan[bool](t, app, "select allowed from pglimit."+call) {
					t.Errorf("%s is refused", call)
				}
			}
		}
	}

	call := hit("a", "10.0.1.1", "")
	year := func(want int) {
		t.Helper()
		got := 0
		if r := wantBlocked(t, app, call); r.ResetAt != nil {
			got = r.ResetAt.Year()
		}
		if got != want {
			t.Errorf("blocked until %d, want %d", got, want)
		}
	}
	until := func(table, key string, year int) {
		t.Helper()
		mustExec(t, db.System(), fmt.Sprintf("update pglimit.%s set blocked_until = '%d-07-01'%s where %s", table, year, map[string]string{"blocks": ", forget_at = null"}[table], key))
	}
	mustExec(t, operator, "select pglimit.block_range('*', '10.0.0.0/8'), pglimit.block_range('a', '10.0.1.1'), pglimit.block('a', '10.0.1.1'), pglimit.block('*', '10.0.1.1')")
	year(0)
	until("block_ranges", "limit_name = '*' and tenant = ''", 2091)
	until("block_ranges", "network = '10.0.1.1'", 2092)
	until("blocks", "subject <> '' and limit_name = '*'", 2093)
	year(0)
	until("blocks", "subject <> '' and limit_name = 'a'", 2094)
	year(2094)
	mustExec(t, operator, "select pglimit.unblock('a', '10.0.1.1')")
	year(2093)
	mustExec(t, operator, "select pglimit.unblock('*', '10.0.1.1')")
	year(2092)
	mustExec(t, operator, "select pglimit.unblock_range('a', '10.0.1.1')")
	year(2091)
	mustExec(t, operator, "select pglimit.unblock_range('*', '10.0.0.0/8')")
	if r := wantBlocked(t, app, call); r.RetryAfter == nil || r.RetryAfter.Hours() > 1 {
		t.Errorf("%+v", r)
	}
	mustExec(t, operator, "select pglimit.unblock_range('a', '10.0.1.0/24')")
	wantHit(t, app, call, "allowed", 998)
}

// TestBlockRangeEverywhere: every function that decides hits goes by a range, and what is forced is counted all the same.
func TestBlockRangeEverywhere(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, limit := range []string{"l", "bucket", "bill"} {
		args := map[string]string{"bucket": ", 'token_bucket'", "bill": ", durable => true"}[limit]
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 9, '1 hour'%s)", limit, args))
		wantHit(t, app, fmt.Sprintf("hit('%s', '2001:db8::1')", limit), "allowed", 8)
		mustExec(t, app, fmt.Sprintf("select pglimit.hit('%s', 'other')", limit))
		mustExec(t, operator, fmt.Sprintf("select pglimit.block_range('%s', '2001:db8::/64', '1 hour')", limit))
		for _, subject := range []string{"2001:DB8::1", "2001:db8::1", "2001:db8:0:0::2"} { // counted and new
			for _, call := range []string{
				"select reason from pglimit.hit('%[1]s', '%[2]s')",
				"select reason from pglimit.peek('%[1]s', '%[2]s')",
				"select reason from pglimit.hit_up_to('%[1]s', '%[2]s', 3, 1)",
				"select reason from pglimit.hold('%[1]s', '%[2]s', 1, '1 min')",
				"select reason from pglimit.hit_many('{%[1]s,%[1]s}', '{%[2]s,other}') where ordinal = 1",
				`select reason from pglimit.admit('[{"limit": "%[1]s", "subject": "%[2]s"}, {"limit": "%[1]s", "subject": "other"}]') where ordinal = 1`,
				`select reason from pglimit.admit('[{"limit": "%[1]s", "subject": "other"}, {"limit": "%[1]s", "subject": "%[2]s"}]') where ordinal = 2`,
			} {
				if got := mustScan[string](t, app, fmt.Sprintf(call, limit, subject)); got != "blocked" {
					t.Errorf(call+": %[3]s", limit, subject, got)
				}
			}
			for part, want := range map[string]string{"block": "%as all of 2001:db8::/64", "answer": "%blocked%"} {
				says := mustScan[string](t, operator, fmt.Sprintf("select says from pglimit.explain_limit('%s', '%s') where step = '%s'", limit, subject, part))
				if !mustScan[bool](t, operator, "select '"+strings.ReplaceAll(says, "'", "''")+"' like '"+want+"'") {
					t.Errorf("explained by %s: %s", part, says)
				}
			}
			if limit == "l" && subject == "2001:db8:0:0::2" {
				wantStamped(t, db, 1+1, 1) // of both spellings that were counted: the second by charge
			}
			if !mustScan[bool](t, app, fmt.Sprintf("select charged from pglimit.charge('%s', '%s', 1)", limit, subject)) {
				t.Errorf("charge(%s, %s) charges nothing", limit, subject)
			}
			wantBlocked(t, app, fmt.Sprintf("hit('%s', '%s')", limit, subject))
		}
		mustExec(t, operator, fmt.Sprintf("select pglimit.unblock_range('%s', '2001:db8::/64')", limit))
		wantHit(t, app, fmt.Sprintf("hit('%s', '2001:db8::1')", limit), "allowed", 6)
	}
}

// TestBlockRangeArguments: misuse is PGL01 with what to do; history says who blocked what, and why; the list has pages and
// filters; purge removes what is over.
func TestBlockRangeArguments(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	for _, call := range []string{
		"block_range(null, '10.0.0.0/8')", "block_range('l', null)", "block_range(' ', '10.0.0.0/8')", "block_range('é', '10.0.0.0/8')", "block_range('l', '10.0.0.0/8', '0 s')", "block_range('l', '10.0.0.0/8', '1 month')",
		"block_range('l', '10.0.0.0/8', why => ' ')", "block_range('l', '10.0.0.0/8', tenant => e'a\\x1fb')", "unblock_range('l', null)", "unblock_range(null, '10.0.0.0/8')",
		"block('l', '')", "unblock('l', '')", // whose row says that there are ranges
	} {
		_, err := operator.Exec(t.Context(), "select pglimit."+call)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "PGL01" || server.Hint == "" || server.Detail == "" {
			t.Errorf("%s: %v", call, err)
		}
	}
	for _, mode := range []string{"isolation level repeatable read", "read only"} {
		mustExec(t, operator, "begin "+mode)
		if _, err := operator.Exec(t.Context(), "select pglimit.block_range('l', '10.0.0.0/8')"); sqlState(err) != "PGL03" {
			t.Errorf("%s: %v", mode, err)
		}
		mustExec(t, operator, "rollback")
	}
	if n := mustScan[int](t, db.System(), "select (select count(*) from pglimit.blocks) + (select count(*) from pglimit.block_ranges)"); n != 0 {
		t.Errorf("%d rows", n)
	}
	mustExec(t, operator, "select pglimit.block_range('l', '10.9.9.9/8', '1 hour', 'ticket 7'); select pglimit.block_range('l', '10.0.0.0/8'); select pglimit.unblock_range('l', '10.0.0.1/8')")
	if got := mustScan[string](t, operator, `select string_agg(concat_ws(' ', action, name, before ->> 'network', after ->> 'network', after ? 'blocked_until', why), ', ' order by version) from pglimit.list_changes('l')`); got !=
		"block_range l 10.0.0.0/8 t ticket 7, block_range l 10.0.0.0/8 10.0.0.0/8 t, unblock_range l 10.0.0.0/8" {
		t.Error(got)
	}
	if mustScan[bool](t, operator, "select pglimit.unblock_range('l', '10.0.0.0/8')") {
		t.Error("what is not blocked is unblocked")
	}

	mustExec(t, operator, `select pglimit.block('l', 's' || g), pglimit.block_range('l', ('10.0.' || g || '.0/24')::inet) from generate_series(1, 3) g;
		select pglimit.block('k', e'\x1f10.0.0.0/8'), pglimit.block_range('k', '10.0.0.0/8'), pglimit.block_range('m', '10.0.0.0/8', '1 hour', tenant => 't'), pglimit.block('l', '10.0.2.7'), pglimit.block_range('m', '2001:db8::/32')`)
	const all = `k \x1f10.0.0.0/8, k 10.0.0.0/8, l 10.0.2.7, l s1, l s2, l s3, l 10.0.1.0/24, l 10.0.2.0/24, l 10.0.3.0/24, m 2001:db8::/32, m 10.0.0.0/8`
	for size := 1; size <= 12; size++ {
		var seen []string
		after := ""
		for {
			rows, err := operator.Query(t.Context(), "select limit_name || ' ' || coalesce(replace(subject, e'\\x1f', '\\x1f'), network::text), cursor from pglimit.list_blocks(max_rows => $1, after => nullif($2, ''))", size, after)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			var row string
			if _, err := pgx.ForEachRow(rows, []any{&row, &after}, func() error {
				seen = append(seen, row)
				n++
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if n < size {
				break
			}
		}
		if got := strings.Join(seen, ", "); got != all {
			t.Errorf("pages of %d: %s, want %s", size, got, all)
		}
	}
	for args, want := range map[string]string{
		"subject_filter => '10.0.2.7'":           "k 10.0.0.0/8, l 10.0.2.7, l 10.0.2.0/24, m 10.0.0.0/8",
		"'l', '::ffff:10.0.2.8'":                 "l 10.0.2.0/24",
		"'l', 's1'":                              "l s1",
		"network_filter => '10.0.0.0/8'":         "k 10.0.0.0/8, m 10.0.0.0/8",
		"'m', tenant_filter => ''":               "m 2001:db8::/32",
		"'l', network_filter => '10.0.2.99/24'":  "l 10.0.2.0/24",
		"'l', '10.0.3.1', null, 100, null, null": "l 10.0.3.0/24",
	} {
		if got := mustScan[string](t, operator, "select string_agg(limit_name || ' ' || coalesce(subject, network::text), ', ' order by tenant, limit_name, subject, network) from pglimit.list_blocks("+args+")"); got != want {
			t.Errorf("list_blocks(%s): %s, want %s", args, got, want)
		}
	}

	mustExec(t, db.System(), `update pglimit.block_ranges set blocked_until = clock_timestamp() where limit_name in ('k', 'm');
		update pglimit.blocks set blocked_until = clock_timestamp(), forget_at = clock_timestamp() where limit_name in ('k', 'm') and subject = ''`)
	if got := mustScan[string](t, operator, "select string_agg(distinct state, ' ') from pglimit.list_blocks('m')"); got != "over" {
		t.Error(got)
	}
	if mustScan[bool](t, operator, "select pglimit.unblock_range('m', '2001:db8::/32')") {
		t.Error("what is over is unblocked")
	}
	mustExec(t, operator, "select pglimit.set_purge_after('0 s'); select pglimit.purge()")
	if got := mustScan[string](t, db.System(), "select string_agg(limit_name, ' ' order by limit_name) from pglimit.block_ranges") + mustScan[string](t, db.System(), "select string_agg(limit_name, ' ') from pglimit.blocks where subject = ''"); got != "l l ll" {
		t.Errorf("purge leaves %s", got)
	}
}

// TestBlockRangeHull: hits look for ranges for as long as one of them holds.
func TestBlockRangeHull(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	for _, step := range []struct{ call, want string }{
		{"block_range('l', '10.0.0.0/8', '1 hour')", "1"},
		{"block_range('l', '11.0.0.0/8', '3 hours')", "3"},
		{"block_range('l', '12.0.0.0/8', '2 hours')", "3"},
		{"block_range('l', '13.0.0.0/8')", "ever"},
		{"block_range('l', '14.0.0.0/8', '4 hours')", "ever"},
		{"unblock_range('l', '13.0.0.0/8')", "4"},
		{"unblock_range('l', '14.0.0.0/8')", "3"},
		{"unblock_range('l', '15.0.0.0/8')", "3"},
		{"block_range('l', '11.0.0.0/8', '1 hour')", "3"}, // no less than the longest
		{"unblock_range('l', '10.0.0.0/8')", "2"},
		{"unblock_range('l', '11.0.0.0/8')", "2"},
		{"unblock_range('l', '12.0.0.0/8')", "none"},
		{"block_range('l', '10.0.0.0/8')", "ever"},
		{"block_range('l', '10.0.0.0/8', '1 hour')", "1"}, // or hits would look for ranges for ever
	} {
		mustExec(t, operator, "select pglimit."+step.call)
		if got := mustScan[string](t, db.System(), `select coalesce((
				select coalesce(round(extract(epoch from blocked_until - clock_timestamp()) / 3600)::text, 'ever') from pglimit.blocks
				where limit_name = 'l' and subject = '' and forget_at is not distinct from blocked_until), 'none')`); got != step.want {
			t.Errorf("after %s: %s, want %s", step.call, got, step.want)
		}
	}
}

// TestBlockRangeSteps: what can come between a hit and the range of its subject, step by step. Whatever ends first, the
// next hit goes by the range.
func TestBlockRangeSteps(t *testing.T) {
	t.Parallel()
	for _, limitName := range []string{"l", "*"} {
		hit := "select pglimit.hit('l', '10.0.0.1', 3, '1 hour')"
		call := hit[len("select pglimit."):]
		block := "select pglimit.block_range('" + limitName + "', '10.0.0.0/8')"
		lift := "select pglimit.unblock_range('" + limitName + "', '10.0.0.0/8')"
		for name, step := range map[string]func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn){
			// the maker of the counter is first: the range waits for it, and stamps the row
			"CreationFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, "begin; "+hit)
				if err := behind(t, app, operator, "commit", block); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 1, 0)
				wantBlocked(t, app, call)
			},
			"CreationRolledBack": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, "begin; "+hit)
				if err := behind(t, app, operator, "rollback", block); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 0, 0)
				wantBlocked(t, app, call)
			},
			// the range is first: the maker waits, and is refused
			"RangeFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, operator, "begin; "+block)
				if err := behind(t, operator, app, "commit", hit); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 0, 0)
				wantBlocked(t, app, call)
			},
			"RangeRolledBack": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, operator, "begin; "+block)
				if err := behind(t, operator, app, "rollback", hit); err != nil {
					t.Error(err)
				}
				wantHit(t, app, call, "allowed", 1)
				wantStamped(t, db, 0, 1)
			},
			// so does one of many keys, and one that has to fit with others
			"RangeBeforeMany": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, operator, "begin; "+block)
				if err := behind(t, operator, app, "commit", "select pglimit.hit_many('{l}', '{10.0.0.1}', null, '{3}', '{1 hour}')"); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 0, 0)
				wantBlocked(t, app, call)
			},
			// what has to fit with others looks again once it has the lock
			"RangeBeforeAdmit": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, operator, "begin; "+block)
				if err := behind(t, operator, app, "commit", `select pglimit.admit('[{"limit": "l", "subject": "10.0.0.1", "max_hits": 3, "per": "1 hour"}]')`); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 0, 0)
				wantBlocked(t, app, call)
			},
			// a hit of a row holds it: the range waits, and stamps it
			"HitFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, hit)
				mustExec(t, app, "begin; "+hit)
				if err := behind(t, app, operator, "commit", block); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 1, 0)
				wantBlocked(t, app, call)
				mustExec(t, operator, lift)
				wantHit(t, app, call, "allowed", 0)
			},
			// it moves on to another turn meanwhile: the row is followed
			"TurnFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, hit)
				mustExec(t, db.System(), "update pglimit.counters set changes = 64")
				mustExec(t, app, "begin; "+hit)
				if err := behind(t, app, operator, "commit", block); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 1, 0)
				wantBlocked(t, app, call)
			},
			// the straight update waits for the stamp, and then finds no row
			"StampFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, hit)
				mustExec(t, operator, "begin; "+block)
				if err := behind(t, operator, app, "commit", hit); err != nil {
					t.Error(err)
				}
				mustExec(t, operator, lift)
				wantHit(t, app, call, "allowed", 1)
			},
			"StampBeforeLoop": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, hit)
				mustExec(t, db.System(), "update pglimit.counters set changes = 64")
				mustExec(t, operator, "begin; "+block)
				if err := behind(t, operator, app, "commit", hit); err != nil {
					t.Error(err)
				}
				mustExec(t, operator, lift)
				wantHit(t, app, call, "allowed", 1)
			},
			"StampBeforeNewWindow": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, hit)
				mustExec(t, db.System(), endWindows)
				mustExec(t, operator, "begin; "+block)
				if err := behind(t, operator, app, "commit", hit); err != nil {
					t.Error(err)
				}
				mustExec(t, operator, lift)
				wantHit(t, app, call, "allowed", 2)
			},
			// a hit that is about to take the stamp of a range that is over away
			"StampTakenOffMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, hit)
				mustExec(t, operator, block)
				mustExec(t, db.System(), rangesAreOver)
				mustExec(t, app, "begin; "+hit)
				if err := behind(t, app, operator, "commit", block); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 1, 0)
				wantBlocked(t, app, call)
			},
			// purged between the look and the lock
			"PurgedMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, hit)
				mustExec(t, db.System(), "update pglimit.counters set reset_at = clock_timestamp() - interval '2 days'")
				purge := db.Conn("pglimit_operator")
				mustExec(t, purge, "begin; select pglimit.purge()")
				if err := behind(t, purge, operator, "commit", block); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 0, 0)
				wantBlocked(t, app, call)
			},
			// one range at a time, whatever their networks and limits
			"TwoRanges": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, app, hit)
				other := db.Conn("pglimit_operator")
				mustExec(t, other, "begin; select pglimit.block_range('"+limitName+"', '10.0.0.0/24', '1 hour')")
				if err := behind(t, other, operator, "commit", block); err != nil {
					t.Error(err)
				}
				wantStamped(t, db, 1, 0)
				if r := wantBlocked(t, app, call); r.RetryAfter != nil {
					t.Errorf("%+v", r)
				}
				mustExec(t, operator, lift)
				if r := wantBlocked(t, app, call); r.RetryAfter == nil {
					t.Errorf("%+v", r)
				}
			},
			"TheSameTwice": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				other := db.Conn("pglimit_operator")
				mustExec(t, other, "begin; "+block)
				if err := behind(t, other, operator, "commit", block); err != nil {
					t.Error(err)
				}
				if got := mustScan[string](t, operator, "select string_agg((before is null)::text, ' ' order by version) from pglimit.list_changes()"); got != "true false" {
					t.Error(got)
				}
				wantBlocked(t, app, call)
			},
			// who lifts one while another is set leaves the row that makes hits look
			"LiftedMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, operator, block)
				other := db.Conn("pglimit_operator")
				mustExec(t, other, "begin; select pglimit.block_range('"+limitName+"', '10.0.0.0/24', '1 hour')")
				if err := behind(t, other, operator, "commit", lift); err != nil {
					t.Error(err)
				}
				if r := wantBlocked(t, app, call); r.RetryAfter == nil {
					t.Errorf("%+v", r)
				}
			},
			"SetMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, operator, block)
				other := db.Conn("pglimit_operator")
				mustExec(t, other, "begin; "+lift)
				if err := behind(t, other, operator, "commit", "select pglimit.block_range('"+limitName+"', '10.0.0.0/24', '1 hour')"); err != nil {
					t.Error(err)
				}
				if r := wantBlocked(t, app, call); r.RetryAfter == nil {
					t.Errorf("%+v", r)
				}
			},
			"LiftedTwice": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
				mustExec(t, operator, block)
				other := db.Conn("pglimit_operator")
				mustExec(t, other, "begin; "+lift)
				if err := behind(t, other, operator, "commit", lift); err != nil {
					t.Error(err)
				}
				if n := mustScan[int](t, operator, "select count(*) from pglimit.list_changes(action_filter => 'unblock_range')"); n != 1 {
					t.Errorf("lifted %d times", n)
				}
				wantHit(t, app, call, "allowed", 2)
			},
		} {
			t.Run(name+limitName, func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				step(t, db, db.Conn("pglimit_app"), db.Conn("pglimit_operator"))
			})
		}
	}
}
