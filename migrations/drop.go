package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DropResult tells what [Drop] removed.
type DropResult struct {
	Kept   []KeptRole // the roles that are still there
	Roles  []string   // the roles that were dropped
	Schema bool       // whether there was a schema to drop
}

// KeptRole is a role that Drop had to leave, which is usual: roles belong to the whole server.
type KeptRole struct {
	Name   string
	Reason string // the server's words, for example "2 objects in database other"
}

// Drop removes the schema with everything in it and everything that depends on it (permits, counters
// and limits included), and then the roles, unless another database uses them or the login may not.
// A database without pglimit is fine. The connection must not be in a transaction.
func Drop(ctx context.Context, conn *pgx.Conn, opts ...Option) (DropResult, error) {
	o := newOptions(opts)
	src, err := o.source()
	if err != nil {
		return DropResult{}, err
	}
	var result DropResult
	err = retry(ctx, conn, o, func() error {
		var err error
		result.Schema, err = dropSchema(ctx, conn, o, src)
		return err
	})
	if err != nil || o.keepRoles {
		return result, err
	}
	// Those that use before the one that owns, so that what is left makes sense.
	for _, role := range []string{"pglimit_app", "pglimit_operator", "pglimit_monitor", "pglimit_system"} {
		dropped, reason, err := dropRole(ctx, conn, o, role)
		switch {
		case err != nil:
			return result, err
		case dropped:
			result.Roles = append(result.Roles, role)
		case reason != "":
			result.Kept = append(result.Kept, KeptRole{Name: role, Reason: reason})
		}
	}
	return result, nil
}

func dropSchema(ctx context.Context, conn *pgx.Conn, o options, src *source) (bool, error) {
	tx, err := begin(ctx, conn, pgx.ReadWrite)
	if err != nil {
		return false, err
	}
	defer rollback(ctx, tx)

	if _, err := tx.Exec(ctx, lockSQL); err != nil {
		return false, err
	}
	st, err := look(ctx, tx)
	if err != nil {
		return false, err
	}
	if st.extension {
		return false, &Error{
			Message: "pglimit was installed here with CREATE EXTENSION",
			Hint:    "drop extension pglimit cascade; drop schema pglimit cascade",
			err:     ErrUnsupported,
		}
	}
	var owner *string
	err = tx.QueryRow(ctx, "select max(nspowner::regrole::text) from pg_namespace where nspname = 'pglimit'").Scan(&owner)
	if err != nil || owner == nil {
		return false, err
	}
	if *owner != "pglimit_system" {
		return false, &Error{
			Message: "schema pglimit belongs to " + *owner + " and is left alone",
			Detail:  "pglimit's own schema belongs to pglimit_system.",
			Hint:    "if you do not need it: drop schema pglimit cascade",
			err:     ErrUnsupported,
		}
	}
	if _, err := tx.Exec(ctx, src.step("enter")); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, setLockTimeout(o.lockTimeout)); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, "drop schema pglimit cascade"); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, src.step("leave")); err != nil {
		return false, err
	}
	return true, tx.Commit(ctx)
}

// dropRole leaves the decision to the server, which alone knows the other databases.
func dropRole(ctx context.Context, conn *pgx.Conn, o options, role string) (dropped bool, reason string, err error) {
	err = retry(ctx, conn, o, func() error {
		tag, err := conn.Exec(ctx, fmt.Sprintf(`drop role %s`, role))
		dropped = err == nil && tag.String() == "DROP ROLE"
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) {
			return err
		}
		switch pgErr.Code {
		case "42704": // undefined_object: gone already
			return nil
		case "2BP01": // dependent_objects_still_exist; the detail lists them
			reason = pgErr.Detail
			return nil
		case "42501": // insufficient_privilege; the detail came with 16
			reason = pgErr.Message
			if pgErr.Detail != "" {
				reason += ": " + pgErr.Detail
			}
			return nil
		}
		return err
	})
	return dropped, reason, err
}
