package migrations

import (
	"fmt"
	"io"
	"strings"
)

// Render writes the installation as one file for psql, for those who review what runs in their
// database or have other tools to run it. It needs the same privileges as [Up], can be run again
// (also on an older version, which it updates), and leaves the same catalog, so that a later Up finds
// nothing to do.
func Render(w io.Writer) error { return render(w, embedded) }

func render(w io.Writer, load func() (*source, error)) error {
	src, err := load()
	if err != nil {
		return err
	}
	var b strings.Builder
	section := func(title, sql string) {
		fmt.Fprintf(&b, "\n-- %s %s\n\n%s\n", title, strings.Repeat("-", max(96-len(title), 3)), strings.TrimSpace(sql))
	}

	fmt.Fprintf(&b, renderHead, src.version)
	section("Roles", src.roles)
	section("Schema, and acting as its owner", src.step("enter"))
	section("No way back", src.step("guard"))
	for _, m := range src.migrations {
		section("Migration "+m.Name, fmt.Sprintf(renderMigration, m.Sequence, strings.TrimSpace(m.UpSQL)))
	}
	section("Code", src.code)
	section("Seal", src.step("seal"))
	section("Done", src.step("leave")+"commit;\n")

	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("migrations: writing the rendered file: %w", err)
	}
	return nil
}

// renderHead makes psql stop at the first error, whatever the reader's psqlrc says, and the one
// transaction leave nothing behind then.
const renderHead = `-- pglimit %s: installs it, or updates an older version. Can be run again.
--
--     psql -X -f <this file> <connection string>
--
-- As a login with CREATEROLE and CREATE on the database, or a superuser. All or nothing.

\set ON_ERROR_STOP on
\set ON_ERROR_ROLLBACK off
\set AUTOCOMMIT on
\set SINGLELINE off

set client_encoding = 'UTF8';
begin isolation level read committed read write;
` + sessionSQL + `;
` + lockSQL + `-- To wait for a table would hold up everybody who comes after: better fail, and be run again.
set local lock_timeout = '200ms';
`

const renderMigration = `select version < %[1]d as pglimit_pending from ` + versionTable + ` \gset
\if :pglimit_pending
%[2]s
update ` + versionTable + ` set version = %[1]d;
\endif`
