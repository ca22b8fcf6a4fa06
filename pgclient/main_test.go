package pgclient_test

import (
	"testing"

	"github.com/pglimit/pglimit/tests/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
