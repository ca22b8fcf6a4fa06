// Package sql holds pglimit's database code: every table, function and policy, one object per file.
//
// It shadows database/sql on purpose: the folder is the product, people look for it under this name,
// and nothing here is Go. Only package migrations imports it. Whoever wants the schema in a database
// calls migrations.Up, and whoever wants it as text calls migrations.Render; a client has no business
// with either and must not import this package, or it would carry DDL into every application.
package sql

import "embed"

// FS shows install.sql, the manifest of all re-runnable code, and the folders with one object per
// file. It is a code package in tern's sense: paths are the names by which files include each other.
//
//go:embed install.sql tables functions policies
var FS embed.FS
