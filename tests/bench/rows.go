package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/pgclient"
)

const (
	nothing script = `select 1`

	// The same count as hit's, by hand: in windows that all subjects share, refused when no row comes
	// back.
	upsert script = `\set key random(1, 10000)
	insert into bench.counters as c (limit_name, subject, window_start, used) values ('bench', 'k' || :key, date_bin('1 minute', clock_timestamp(), 'epoch'), 1) on conflict (limit_name, subject) do update set used = case when c.window_start = excluded.window_start then c.used + 1 else 1 end, window_start = excluded.window_start where c.window_start < excluded.window_start or c.used < 1000000 returning used`

	hit script = `\set key random(1, 10000)
	select * from pglimit.hit('bench', 'k' || :key, max_hits => 1000000, per => '1 minute')`

	hitLookedUp script = `\set key random(1, 10000)
	select * from pglimit.hit('bench_row', 'k' || :key)`

	// The same limit, counted in another way.
	hitSliding script = `\set key random(1, 10000)
	select * from pglimit.hit('bench_sliding', 'k' || :key)`

	hitBucket script = `\set key random(1, 10000)
	select * from pglimit.hit('bench_bucket', 'k' || :key)`

	hitCalendar script = `\set key random(1, 10000)
	select * from pglimit.hit('bench_calendar', 'k' || :key)`

	hitDurable script = `\set key random(1, 10000)
	select * from pglimit.hit('bench_durable', 'k' || :key)`

	hitSlidingHot  script = `select * from pglimit.hit('bench_sliding', 'hot')`
	hitBucketHot   script = `select * from pglimit.hit('bench_bucket', 'hot')`
	hitCalendarHot script = `select * from pglimit.hit('bench_calendar', 'hot')`
	hitDurableHot  script = `select * from pglimit.hit('bench_durable', 'hot')`
	hitLookedUpHot script = `select * from pglimit.hit('bench_row', 'hot')`

	hitHot script = `select * from pglimit.hit('bench', 'hot', max_hits => 1000000000, per => '1 minute')`

	// 100 of the keys that hit has, at once.
	hitMany script = `\set base random(0, 99)
	select count(*) from pglimit.hit_many(array_fill('bench'::text, array[100]), (select array_agg('k' || 100 * i + :base) from generate_series(0, 99) i), null, array_fill(1000000::bigint, array[100]), array_fill('1 minute'::interval, array[100]))`

	hitRefused         script = `select * from pglimit.hit('bench', 'refused', max_hits => 10, per => '1 day')`
	hitLookedUpRefused script = `select * from pglimit.hit('bench_row_full', 'refused')`
	hitSlidingRefused  script = `select * from pglimit.hit('bench_sliding_full', 'refused')`
	hitBucketRefused   script = `select * from pglimit.hit('bench_bucket_full', 'refused')`
	hitCalendarRefused script = `select * from pglimit.hit('bench_calendar_full', 'refused')`

	// A claim that lost three races has no permit, and its release finds none.
	series script = `select coalesce(bench.claim('series', 25, '30 s'), 0) as permit_id \gset
	select bench.release('series', :permit_id)`
)

// claim claims and releases a permit under the caps given, and counts a refusal.
func claim(endpoint, caps string) script {
	return script(fmt.Sprintf(`\set holder random(1, 1000)
	select granted::int as granted, coalesce(permit_id, 0) as permit_id from pglimit.claim_permit('%s', 'h' || :holder, %s, lease => '30 s') \gset
	\if :granted
	select * from pglimit.release_permit(:permit_id)
	\else
	select nextval('bench.refused')
	\endif`, endpoint, caps))
}

// hitManyOf hits 100 of the keys that hit has, by the limit of a row.
func hitManyOf(limit string) script {
	return script(fmt.Sprintf(`\set base random(0, 99)
	select count(*) from pglimit.hit_many(array_fill('%s'::text, array[100]), (select array_agg('k' || 100 * i + :base) from generate_series(0, 99) i))`, limit))
}

// admit admits so many hits, each of another limit.
func admit(wants int) script {
	return script(`\set a random(1, 10000)
	\set b random(1, 10000)
	\set holder random(1, 1000)
	select max(permit_id) as permit_id from pglimit.admit(jsonb_build_array(` + strings.Join([]string{
		`jsonb_build_object('limit', 'user', 'subject', 'u' || :a, 'max_hits', 1000000, 'per', '1 hour')`,
		`jsonb_build_object('limit', 'team', 'subject', 't' || :b, 'max_hits', 1000000, 'per', '1 hour')`,
		`jsonb_build_object('limit', 'site', 'subject', 's' || :holder, 'max_hits', 1000000, 'per', '1 hour')`,
	}[:wants], ", ") + `))`)
}

// The same at an endpoint with a row, which gives cap and lease.
func claimByRow(endpoint, more string) script {
	return script(fmt.Sprintf(`\set holder random(1, 1000)
	\set request random(1, 1000000000)
	select coalesce(permit_id, 0) as permit_id from pglimit.claim_permit('%s', 'h' || :holder%s) \gset
	select * from pglimit.release_permit(:permit_id)`, endpoint, more))
}

const (
	// A place in the queue, the permit and its end: three round trips instead of two.
	waitInTurn script = `\set holder random(1, 1000)
	select ticket from pglimit.enqueue_permit('fair', 'h' || :holder) \gset
	select coalesce(permit_id, 0) as permit_id from pglimit.poll_ticket(:ticket) \gset
	select * from pglimit.release_permit(:permit_id)`

	claimRefused script = `select * from pglimit.claim_permit('full', 'h', endpoint_cap => 25, lease => '1 day')`
)

var (
	claimOnePool    = claim("one_pool", "endpoint_cap => 25")
	claimThreePools = claim("three_pools", "holder_cap => 8, endpoint_cap => 25, installation_cap => 25")
)

// rows are what can be measured, in the order of the table.
var rows = []struct {
	name    string
	measure func(*bench, context.Context) ([]result, error)
}{
	{"hit", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "`hit`, 10,000 keys, against the plain upsert", hit, upsert, 0.75)
	}},
	{"lookup", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "`hit`, limit looked up, against given", hitLookedUp, hit, 0.85)
	}},
	{"many", func(b *bench, ctx context.Context) ([]result, error) {
		return b.many(ctx, "`hit_many` of 100 keys, keys a second, against `hit`", hitMany, hit)
	}},
	{"refused", func(b *bench, ctx context.Context) ([]result, error) {
		return b.refused(ctx, "refused `hit` on a hot key", hitRefused)
	}},
	{"lookup-refused", func(b *bench, ctx context.Context) ([]result, error) {
		return b.refused(ctx, "refused `hit`, limit looked up", hitLookedUpRefused)
	}},
	{"hit-held", func(b *bench, ctx context.Context) ([]result, error) {
		return b.held(ctx, "`hit` on a hot key", hitHot)
	}},
	{"lookup-held", func(b *bench, ctx context.Context) ([]result, error) {
		return b.held(ctx, "`hit` on a hot key, limit looked up", hitLookedUpHot)
	}},
	{"sliding", func(b *bench, ctx context.Context) ([]result, error) {
		if err := b.meet(ctx, "bench_sliding"); err != nil {
			return nil, err
		}
		return b.compare(ctx, "`hit` by `sliding_window`, against `fixed_window`, both looked up", hitSliding, hitLookedUp, 0)
	}},
	{"sliding-refused", func(b *bench, ctx context.Context) ([]result, error) {
		return b.refused(ctx, "refused `hit` by `sliding_window`, limit looked up", hitSlidingRefused)
	}},
	{"sliding-many", func(b *bench, ctx context.Context) ([]result, error) {
		return b.many(ctx, "`hit_many` by `sliding_window`, keys a second, against `hit`, both looked up", hitManyOf("bench_sliding"), hitSliding)
	}},
	{"sliding-held", func(b *bench, ctx context.Context) ([]result, error) {
		return b.held(ctx, "`hit` by `sliding_window` on a hot key", hitSlidingHot)
	}},
	{"bucket", func(b *bench, ctx context.Context) ([]result, error) {
		if err := b.meet(ctx, "bench_bucket"); err != nil {
			return nil, err
		}
		return b.compare(ctx, "`hit` by `token_bucket`, against `fixed_window`, both looked up", hitBucket, hitLookedUp, 0)
	}},
	{"bucket-refused", func(b *bench, ctx context.Context) ([]result, error) {
		return b.refused(ctx, "refused `hit` by `token_bucket`, limit looked up", hitBucketRefused)
	}},
	{"bucket-many", func(b *bench, ctx context.Context) ([]result, error) {
		return b.many(ctx, "`hit_many` by `token_bucket`, keys a second, against `hit`, both looked up", hitManyOf("bench_bucket"), hitBucket)
	}},
	{"bucket-held", func(b *bench, ctx context.Context) ([]result, error) {
		return b.held(ctx, "`hit` by `token_bucket` on a hot key", hitBucketHot)
	}},
	{"calendar", func(b *bench, ctx context.Context) ([]result, error) {
		if err := b.meet(ctx, "bench_calendar"); err != nil {
			return nil, err
		}
		return b.compare(ctx, "`hit` by `calendar`, against `fixed_window`, both looked up", hitCalendar, hitLookedUp, 0)
	}},
	{"calendar-refused", func(b *bench, ctx context.Context) ([]result, error) {
		return b.refused(ctx, "refused `hit` by `calendar`, limit looked up", hitCalendarRefused)
	}},
	{"calendar-many", func(b *bench, ctx context.Context) ([]result, error) {
		return b.many(ctx, "`hit_many` by `calendar`, keys a second, against `hit`, both looked up", hitManyOf("bench_calendar"), hitCalendar)
	}},
	{"calendar-held", func(b *bench, ctx context.Context) ([]result, error) {
		return b.held(ctx, "`hit` by `calendar` on a hot key", hitCalendarHot)
	}},
	{"durable", func(b *bench, ctx context.Context) ([]result, error) {
		if err := b.setDurable(ctx); err != nil {
			return nil, err
		}
		return b.compare(ctx, "`hit` of a durable limit, against one that is not, both looked up", hitDurable, hitLookedUp, 0)
	}},
	{"durable-held", func(b *bench, ctx context.Context) ([]result, error) {
		if err := b.setDurable(ctx); err != nil {
			return nil, err
		}
		return b.held(ctx, "`hit` of a durable limit on a hot key", hitDurableHot)
	}},
	{"claim", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "claim + release, cap 25, against the `generate_series` claim", claimOnePool, series, 1.8)
	}},
	{"false-refusals", (*bench).falseRefusals},
	{"claim-held", func(b *bench, ctx context.Context) ([]result, error) {
		return b.held(ctx, "claim + release, cap 25", claimOnePool)
	}},
	{"pools", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "claim over three pools, against one pool", claimThreePools, claimOnePool, 0.5)
	}},
	{"row", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "claim + release, cap and lease from the endpoint's row, against given", claimByRow("plain", ""), claimOnePool, 0)
	}},
	{"request", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "claim + release, with a `request_id`, against without",
			claimByRow("plain", ", request_id => 'r' || :client_id || '-' || :request"), claimByRow("plain", ""), 0)
	}},
	{"override", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "claim + release, holder with an override, against without", claimByRow("overridden", ""), claimByRow("two_pools", ""), 0)
	}},
	{"shadow", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "claim + release beyond the cap in mode shadow, against a plain endpoint", claimByRow("shadow", ""), claimByRow("plain", ""), 0)
	}},
	{"fair", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "claim + release at a fair endpoint, nobody waits, against a plain one", claimByRow("fair", ""), claimByRow("plain", ""), 0)
	}},
	{"wait", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "ticket, poll, release, against claim + release", waitInTurn, claimByRow("plain", ""), 0)
	}},
	{"wait-held", func(b *bench, ctx context.Context) ([]result, error) {
		return b.held(ctx, "ticket, poll, release", waitInTurn)
	}},
	{"admit", func(b *bench, ctx context.Context) ([]result, error) {
		return b.compare(ctx, "`admit` of three hits, against one", admit(3), admit(1), 1/1.8)
	}},
	{"poll", (*bench).poll},
	{"client", (*bench).client},
}

func rowNames() []string {
	var names []string
	for _, row := range rows {
		names = append(names, row.name)
	}
	return names
}

// setDurable makes the durable limit. From then on refusals of calls that bring their limit look whether it is special, so
// the rows before must not know it.
func (b *bench) setDurable(ctx context.Context) error {
	_, err := b.super.Exec(ctx, "select pglimit.set_limit('bench_durable', max_hits => 1000000, per => '1 minute', durable => true)")
	return err
}

// meet hits each of the 10,000 keys once, for a first hit takes several times as long as another.
func (b *bench) meet(ctx context.Context, limit string) error {
	for base := range 100 {
		if _, err := b.super.Exec(ctx, "select count(*) from pglimit.hit_many(array_fill($1::text, array[100]), (select array_agg('k' || 100 * i + $2::int) from generate_series(0, 99) i))", limit, base); err != nil {
			return err
		}
	}
	return nil
}

// rounds takes turns between two measurements. A round before the first is not counted: it makes the
// rows, and fills the caches.
func (b *bench) rounds(r result, first, second func() (float64, error)) (result, error) {
	for round := range b.options.rounds + 1 {
		x, err := first()
		if err != nil {
			return r, err
		}
		y, err := second()
		if err != nil {
			return r, err
		}
		if round == 0 {
			continue
		}
		r.a, r.b, r.ratios = append(r.a, x), append(r.b, y), append(r.ratios, x/y)
	}
	return r, nil
}

// many measures keys: each call of hit_many decides 100 of them.
func (b *bench) many(ctx context.Context, title string, many, one script) ([]result, error) {
	r, err := b.rounds(result{title: title, target: 5, unit: perSecond},
		func() (float64, error) {
			calls, err := b.tps(ctx, many)
			return 100 * calls, err
		},
		func() (float64, error) { return b.tps(ctx, one) })
	return []result{r}, err
}

// compare measures a script against another.
func (b *bench) compare(ctx context.Context, title string, script, against script, target float64) ([]result, error) {
	r, err := b.rounds(result{title: title, target: target, unit: perSecond},
		func() (float64, error) { return b.tps(ctx, script) },
		func() (float64, error) { return b.tps(ctx, against) })
	return []result{r}, err
}

// held measures a script while a snapshot is held, which keeps every dead row in place, against the
// same without. Each round starts from vacuumed tables.
func (b *bench) held(ctx context.Context, title string, s script) ([]result, error) {
	title = fmt.Sprintf("%s, snapshot held for %d s, against without", title, int(b.options.held.Seconds()))
	r, err := b.rounds(result{title: title, target: 0.85, unit: perSecond},
		func() (float64, error) { return b.underSnapshot(ctx, s) },
		func() (float64, error) { return b.tps(ctx, s) })
	return []result{r}, err
}

func (b *bench) underSnapshot(ctx context.Context, s script) (float64, error) {
	holder, err := pgx.Connect(ctx, b.server.DSN("postgres"))
	if err != nil {
		return 0, err
	}
	defer holder.Close(context.WithoutCancel(ctx))
	if _, err := holder.Exec(ctx, "begin isolation level repeatable read; select 1"); err != nil {
		return 0, err
	}
	if _, err := b.run(ctx, s, b.options.held); err != nil {
		return 0, err
	}
	tps, err := b.tps(ctx, s)
	if err != nil {
		return 0, err
	}
	if _, err := holder.Exec(ctx, "rollback"); err != nil {
		return 0, err
	}
	return tps, b.vacuum(ctx)
}

// refused measures hits of a limit of 10 that are refused, and what they leave in the database.
func (b *bench) refused(ctx context.Context, title string, hit script) ([]result, error) {
	conn, err := pgx.Connect(ctx, b.app.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for range 10 { // uses the limit up
		if _, err := conn.Exec(ctx, string(hit)); err != nil {
			return nil, err
		}
	}
	if err := conn.Close(ctx); err != nil {
		return nil, err
	}

	before, err := b.traces(ctx)
	if err != nil {
		return nil, err
	}
	results, err := b.compare(ctx, title+", against `select 1`", hit, nothing, 0.55)
	if err != nil {
		return nil, err
	}
	after, err := b.traces(ctx)
	if err != nil {
		return nil, err
	}
	return append(results, result{
		title: "– rows written by those refusals",
		fact:  strconv.FormatInt(after.rows-before.rows, 10), met: after.rows == before.rows, want: "0",
	}, result{
		// Those of autovacuum, should it have run, are among them.
		title: "– transaction numbers used meanwhile",
		fact:  strconv.FormatInt(after.xids-before.xids, 10), met: after.xids-before.xids < 100, want: "about 0",
	}), nil
}

// traces are what calls may leave behind.
type traces struct{ rows, xids int64 }

func (b *bench) traces(ctx context.Context) (t traces, err error) {
	if err := b.settle(ctx); err != nil {
		return t, err
	}
	// What this session wrote while it prepared the rows is otherwise counted up to a minute later.
	if _, err := b.super.Exec(ctx, "select pg_stat_force_next_flush()"); err != nil {
		return t, err
	}
	if t.rows, err = b.number(ctx, `
		select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint
		from pg_stat_user_tables
		where schemaname = 'pglimit'`); err != nil {
		return t, err
	}
	t.xids, err = b.number(ctx, `select pg_snapshot_xmax(pg_current_snapshot())::text::bigint`)
	return t, err
}

// falseRefusals has all clients claim under a cap that they can never reach: one permit is free at any
// moment, so that every refusal is a false one.
func (b *bench) falseRefusals(ctx context.Context) ([]result, error) {
	if _, err := b.super.Exec(ctx, "alter sequence bench.refused restart"); err != nil {
		return nil, err
	}
	limit := b.options.clients + 1
	tight := claim("tight", fmt.Sprintf("endpoint_cap => %d", limit))
	var claims int64
	for range b.options.rounds {
		o, err := b.run(ctx, tight, b.options.seconds)
		if err != nil {
			return nil, err
		}
		claims += o.transactions
	}
	refused, err := b.number(ctx, "select case when is_called then last_value else 0 end from bench.refused")
	return []result{{
		title: fmt.Sprintf("false refusals, %d clients on cap %d", b.options.clients, limit),
		fact:  fmt.Sprintf("%d of %d claims", refused, claims), met: refused == 0, want: "0",
	}}, err
}

// poll measures polls of tickets that wait for a full pool, against claims that it refuses.
func (b *bench) poll(ctx context.Context) ([]result, error) {
	conn, err := pgx.Connect(ctx, b.app.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for range 25 {
		if _, err := conn.Exec(ctx, string(claimRefused)); err != nil {
			return nil, err
		}
	}
	poll := "\\set ticket case"
	for client := range b.options.clients {
		var ticket int64
		if err := conn.QueryRow(ctx, `select ticket
			from pglimit.enqueue_permit('full', 'h', endpoint_cap => 25, lease => '1 day', deadline => '1 day')`).Scan(&ticket); err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, "select pglimit.renew_permit($1, '1 day'), pglimit.poll_ticket($1)", ticket); err != nil {
			return nil, err
		}
		poll += fmt.Sprintf(" when :client_id = %d then %d", client, ticket)
	}
	if err := conn.Close(ctx); err != nil {
		return nil, err
	}
	before, err := b.traces(ctx)
	if err != nil {
		return nil, err
	}
	poll += " end\n\tselect * from pglimit.poll_ticket(:ticket)"
	results, err := b.compare(ctx, "poll of a waiting ticket, against a refused claim", script(poll), claimRefused, 1)
	if err != nil {
		return nil, err
	}
	after, err := b.traces(ctx)
	if err != nil {
		return nil, err
	}
	return append(results, result{
		title: "– rows written by those polls",
		fact:  strconv.FormatInt(after.rows-before.rows, 10), met: after.rows == before.rows, want: "0",
	}), nil
}

// client measures a hit through the Go client on one warm connection, against a query that does
// nothing: what its transaction and the function add to a round trip.
func (b *bench) client(ctx context.Context) ([]result, error) {
	client, err := pgclient.Open(ctx, b.app.String(), pgclient.WithMaxConns(1))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	conn, err := pgx.Connect(ctx, b.app.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))

	maxHits, per, subject := int64(1000000000), time.Hour, 0
	r, err := b.rounds(result{title: "Go client, one goroutine: median time of `Hit`, against `select 1`", unit: microseconds},
		func() (float64, error) {
			return b.medianOf(func() error {
				subject = (subject + 1) % 10000
				d, err := client.Hit(ctx, pgclient.HitParams{
					Limit: "client", MaxHits: &maxHits, Per: &per, Subject: "k" + strconv.Itoa(subject),
				})
				if err == nil && !d.Allowed {
					err = fmt.Errorf("a hit was refused: %+v", d)
				}
				return err
			})
		},
		func() (float64, error) {
			return b.medianOf(func() error {
				var one int
				return conn.QueryRow(ctx, "select 1").Scan(&one)
			})
		})
	return []result{r}, err
}

// medianOf calls one after the other and gives the median time of a call in microseconds.
func (b *bench) medianOf(call func() error) (float64, error) {
	var times []float64
	end := time.Now().Add(b.options.seconds)
	for b.goesOn(len(times), end) {
		start := time.Now()
		if err := call(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(start))/float64(time.Microsecond))
	}
	return median(times), nil
}

func (b *bench) goesOn(calls int, end time.Time) bool {
	if n := b.options.transactions; n > 0 {
		return calls < n
	}
	return calls == 0 || time.Now().Before(end)
}
