package migrations

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Status tells what is installed, against what this package would install.
type Status struct {
	CodeHash      string // of the installed functions, policies and grants; "" when there are none
	CodeVersion   string
	ForeignOwner  string // who owns a schema pglimit that is something else, where Up would fail; else ""
	Installed     bool   // whether there is anything of pglimit in the database
	SchemaVersion int    // the number of the last migration

	// Drift lists what differs from what the installer left behind, because somebody changed the
	// schema by hand: "function pglimit.hit(…) differs", "… is missing", "… is not part of pglimit".
	// Empty also when there is nothing to compare with, see DriftUnknown.
	Drift []string

	// DriftUnknown says why changes by hand could not be told, "" when they could.
	DriftUnknown string

	WantCodeHash      string
	WantCodeVersion   string
	WantSchemaVersion int
}

// Newer tells whether a newer version is installed than this package has: Up would leave it alone.
func (s Status) Newer() bool {
	return s.SchemaVersion > s.WantSchemaVersion || compareVersions(s.CodeVersion, s.WantCodeVersion) > 0
}

// Pending tells whether Up would have something to do.
func (s Status) Pending() bool {
	return !s.Newer() && (s.SchemaVersion < s.WantSchemaVersion || s.CodeHash != s.WantCodeHash)
}

// Check reads what is installed. It only reads catalogs, so any login that can connect may call it,
// also on a standby; the connection must not be in a transaction.
func Check(ctx context.Context, conn *pgx.Conn) (Status, error) { return check(ctx, conn, embedded) }

func check(ctx context.Context, conn *pgx.Conn, load func() (*source, error)) (Status, error) {
	src, err := load()
	if err != nil {
		return Status{}, err
	}
	tx, err := begin(ctx, conn, pgx.ReadOnly)
	if err != nil {
		return Status{}, err
	}
	defer rollback(ctx, tx)

	st, err := look(ctx, tx)
	if err != nil {
		return Status{}, err
	}
	s := Status{
		CodeHash:          st.seal.CodeHash,
		CodeVersion:       st.seal.CodeVersion,
		Installed:         st.versionTable,
		SchemaVersion:     st.seal.SchemaVersion,
		WantCodeHash:      src.hash,
		WantCodeVersion:   src.version,
		WantSchemaVersion: src.head(),
	}
	switch {
	case !s.Installed:
		s.ForeignOwner = st.foreignOwner
	case st.seal.CodeHash == "":
		s.DriftUnknown = "an installation was begun and not finished"
	case st.seal.Format != sealFormat:
		s.DriftUnknown = "another version of the installer recorded it in another form; applying the code again renews that"
	case st.seal.Server != st.server:
		s.DriftUnknown = fmt.Sprintf("it was installed on PostgreSQL %d, and %d describes the same objects in other words; "+
			"applying the code again renews the record", st.seal.Server, st.server)
	default:
		now, err := fingerprint(ctx, tx)
		if err != nil {
			return Status{}, err
		}
		s.Drift = st.seal.drift(now)
	}
	return s, nil
}

// state is what one look at the catalogs tells.
type state struct {
	extension    bool
	foreignOwner string
	missingRoles bool
	seal         seal
	server       int // major version
	standby      bool
	versionTable bool
}

// seal is what the last installer recorded, see steps/seal.sql.
type seal struct {
	CodeHash      string            `json:"code_hash"`
	CodeVersion   string            `json:"code_version"`
	Format        int               `json:"format"`
	Objects       map[string]string `json:"objects"`
	SchemaVersion int               `json:"schema_version"`
	Server        int               `json:"server"`
}

// lookSQL must not name anything of the schema: whoever may not use it could not even ask.
const lookSQL = `
select
    pg_catalog.current_setting('server_version_num')::int / 10000,
    pg_catalog.pg_is_in_recovery(),
    exists (select from pg_catalog.pg_extension e where e.extname = 'pglimit'),
    coalesce((select pg_catalog.pg_get_userbyid(n.nspowner)::text from pg_catalog.pg_namespace n
        where n.nspname = 'pglimit' and pg_catalog.pg_get_userbyid(n.nspowner) <> 'pglimit_system'), ''),
    (select pg_catalog.count(*) < 4 from pg_catalog.pg_roles r where r.rolname in
        ('pglimit_system', 'pglimit_app', 'pglimit_operator', 'pglimit_monitor')),
    t.oid is not null,
    coalesce(pg_catalog.obj_description(t.oid, 'pg_class'), '')
from (select) one
left join (
    select c.oid
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pglimit'
        and c.relname = 'schema_version'
) t on true`

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func look(ctx context.Context, db querier) (state, error) {
	var st state
	var comment string
	err := db.QueryRow(ctx, lookSQL).Scan(&st.server, &st.standby, &st.extension, &st.foreignOwner, &st.missingRoles,
		&st.versionTable, &comment)
	if err != nil {
		return st, fmt.Errorf("migrations: reading what is installed: %w", err)
	}
	// Anything else in the comment is no seal, and no seal means unknown: Up installs anew.
	if i := strings.IndexByte(comment, '{'); i >= 0 {
		var s seal
		if json.Unmarshal([]byte(comment[i:]), &s) == nil {
			st.seal = s
		}
	}
	return st, nil
}

// usable tells whether there can be an installation in this database at all.
func (st state) usable(src *source) error {
	switch {
	case st.server < 15:
		return &Error{
			Message: fmt.Sprintf("PostgreSQL %d is too old", st.server),
			Detail:  "pglimit needs unlogged sequences, which came with 15.",
			Hint:    "install it on PostgreSQL 15 or newer",
			err:     ErrUnsupported,
		}
	case st.extension:
		return &Error{
			Message: "pglimit was installed here with CREATE EXTENSION",
			Detail:  "An extension's objects change with the extension only.",
			Hint:    "alter extension pglimit update",
			err:     ErrUnsupported,
		}
	case st.standby && !st.current(src):
		return &Error{
			Code:    "PGL03",
			Message: "this server is a standby, where nothing can be installed",
			Hint:    "connect to the primary (target_session_attrs=read-write)",
			err:     ErrUnsupported,
		}
	case st.seal.SchemaVersion > src.head() || compareVersions(st.seal.CodeVersion, src.version) > 0:
		// The guard step says this too, under the lock, but only to those who get that far.
		return &Error{
			Code: "PGL04",
			Message: fmt.Sprintf("a newer pglimit is installed: %s, schema version %d, this installer has %s, %d",
				st.seal.CodeVersion, st.seal.SchemaVersion, src.version, src.head()),
			Detail: "Older code would take away what newer clients rely on.",
			Hint: "Older clients work with newer code: there is nothing to do for them. " +
				"To change the installation use its own version of the installer, or a newer one.",
			err: ErrNewerInstalled,
		}
	}
	return nil
}

// current tells whether there is nothing to do.
func (st state) current(src *source) bool {
	return st.seal.CodeHash == src.hash && st.seal.SchemaVersion == src.head()
}

// comparable tells whether the seal's fingerprints were made the way fingerprint makes them now.
// Another major version prints definitions in other words. That is no reason to install anything:
// after pg_upgrade every program would have to be privileged to start.
func (s seal) comparable(server int) bool { return s.Format == sealFormat && s.Server == server }

// drift lists the differences between the sealed objects and those of now.
func (s seal) drift(now map[string]string) []string {
	var drift []string
	for object, hash := range s.Objects {
		switch found, ok := now[object]; {
		case !ok:
			drift = append(drift, object+" is missing")
		case found != hash:
			drift = append(drift, object+" differs")
		}
	}
	for object := range now {
		if _, ok := s.Objects[object]; !ok {
			drift = append(drift, object+" is not part of pglimit")
		}
	}
	slices.Sort(drift)
	return drift
}

// readDrift compares outside of a transaction.
func readDrift(ctx context.Context, conn *pgx.Conn, s seal) ([]string, error) {
	tx, err := begin(ctx, conn, pgx.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer rollback(ctx, tx)
	now, err := fingerprint(ctx, tx)
	if err != nil {
		return nil, err
	}
	return s.drift(now), nil
}

func fingerprint(ctx context.Context, db querier) (map[string]string, error) {
	rows, _ := db.Query(ctx, stepText("fingerprint"))
	objects := map[string]string{}
	var object, hash string
	_, err := pgx.ForEachRow(rows, []any{&object, &hash}, func() error {
		objects[object] = hash
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("migrations: reading the catalog: %w", err)
	}
	return objects, nil
}

var versionPattern = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`)

// compareVersions compares by number; what is no version is older than any.
func compareVersions(a, b string) int {
	x, y := versionPattern.FindStringSubmatch(a), versionPattern.FindStringSubmatch(b)
	if x == nil || y == nil {
		return cmp.Compare(len(x), len(y))
	}
	for i := 1; i < len(x); i++ {
		m, err1 := strconv.Atoi(x[i])
		n, err2 := strconv.Atoi(y[i])
		if errors.Join(err1, err2) != nil {
			return cmp.Compare(len(x[i]), len(y[i]))
		}
		if c := cmp.Compare(m, n); c != 0 {
			return c
		}
	}
	return 0
}
