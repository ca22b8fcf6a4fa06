package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	urlFlag        = "--database-url"
	urlVariable    = "LIMITCTL_DATABASE_URL"
	commonVariable = "DATABASE_URL"

	connectTimeout = 5 * time.Second
	defaultTimeout = 10 * time.Second
)

// address is a connection string and where it was found: what goes wrong with it is said about that
// place, since its text may hold a password.
type address struct {
	from string
	text string // "" leaves everything to PG*, the service file and the defaults
}

// findAddress takes the first of flag, LIMITCTL_DATABASE_URL, DATABASE_URL. Whatever it leaves out
// comes from PG* and so on, as in psql.
func findAddress(flag *string, getenv func(string) string) (address, error) {
	switch {
	case flag != nil && strings.TrimSpace(*flag) == "":
		// Probably a variable that is not set. Going on would reach some other database.
		return address{}, usageError(urlFlag+" is empty", "leave it out to connect as "+urlVariable+", "+commonVariable+" or PG* say")
	case flag != nil:
		return address{from: urlFlag, text: *flag}, nil
	case getenv(urlVariable) != "":
		return address{from: urlVariable, text: getenv(urlVariable)}, nil
	case getenv(commonVariable) != "":
		return address{from: commonVariable, text: getenv(commonVariable)}, nil
	}
	return address{from: "the PG* variables"}, nil
}

// fault is a usageError about an address.
func (a address) fault(what, hint string) error {
	if hint == "" {
		hint = "write it as postgres://user@host:5432/database, with special characters escaped: @ is %40, / is %2F, : is %3A"
	}
	p := usageError(a.from+": the address "+what, hint)
	p.detail = "Its text is not shown, as it may hold a password."
	return p
}

// config is what to connect with, and notes about what was left out of it.
func (a address) config(getenv func(string) string) (config *pgxpool.Config, notes []string, err error) {
	for _, variable := range []string{"PGHOSTADDR", "PGREQUIREPEER", "PGSSLCRL", "PGSSLCRLDIR"} {
		if getenv(variable) != "" {
			return nil, nil, refusedParameter(variable, "the environment", strings.ToLower(strings.TrimPrefix(variable, "PG")))
		}
	}
	if err := a.check(); err != nil {
		return nil, nil, err
	}
	// pgx.ParseConfig, because pgxpool's takes its pool_* parameters away before they can be named.
	conn, err := pgx.ParseConfig(a.text)
	if err != nil {
		return nil, nil, a.parseFault(err)
	}
	if notes, err = a.checkParameters(conn.RuntimeParams); err != nil {
		return nil, nil, err
	}
	config, err = pgxpool.ParseConfig(a.text)
	if err != nil {
		return nil, nil, a.fault("has a pool_* parameter with a value of the wrong kind", "limitctl needs none of them: leave it out")
	}
	config.ConnConfig.RuntimeParams = conn.RuntimeParams
	return config, notes, nil
}

var parameterName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.]*$`)

// check finds the mistakes that would not fail to parse but put parts of a password where they are
// shown: into the host, the database or the name of a parameter.
func (a address) check() error {
	if a.text == "" {
		return nil
	}
	rest, isURL := strings.CutPrefix(a.text, "postgresql://")
	if !isURL {
		rest, isURL = strings.CutPrefix(a.text, "postgres://")
	}
	if !isURL {
		if head, _, found := strings.Cut(a.text, "="); !found || strings.Contains(head, "://") {
			return a.fault("is neither a postgres:// URL nor key=value pairs", "")
		}
		return nil
	}
	// As libpq does: an @ before the first slash ends user and password. Any other @ is a stray.
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:]
	}
	if strings.Contains(rest, "@") {
		return a.fault("has an @ in an unexpected place", "")
	}
	return nil
}

// parseFault says what is wrong with an address that cannot be parsed, in words of our own: pgx masks
// passwords only where it recognises them.
func (a address) parseFault(err error) error {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return a.fault("cannot be parsed", "")
	}
	message := parse.Error()
	message = message[strings.LastIndex(message, "`: ")+1:]
	inner := ""
	if cause := parse.Unwrap(); cause != nil {
		inner = cause.Error()
	}
	for _, fault := range []struct{ sign, what, hint string }{
		{"failed to read service", "names a service that cannot be read: " + inner, "look into ~/.pg_service.conf, or the file that PGSERVICEFILE names"},
		{"failed to configure TLS", "asks for TLS in a way that does not work: " + inner, "look at sslmode, sslrootcert, sslcert and sslkey"},
		{"invalid port", "has a port that is not a number from 1 to 65535", ""},
		{"could not match", "names more or fewer ports than hosts", "give one port for all hosts, or one for each"},
		{"connect_timeout", "has a connect_timeout that is not a number of seconds", "connect_timeout=5"},
		{"target_session_attrs", "has a target_session_attrs that does not exist", "target_session_attrs=primary"},
		{"default_query_exec_mode", "has a default_query_exec_mode that does not exist", "default_query_exec_mode=exec"},
		{"cache_capacity", "has a cache capacity that is not a number", "leave it out"},
		{"channel_binding", "has a channel_binding that is none of disable, prefer and require", "channel_binding=prefer"},
		{"require_auth", "has a require_auth that names unknown methods", "require_auth=scram-sha-256"},
		{"sslcertmode", "has an sslcertmode that is none of disable, allow and require", "sslcertmode=allow"},
		{"protocol_version", "has a protocol version that does not exist", "leave it out"},
		{"separator", "has a parameter that is not key=value behind its question mark", ""},
		{"quoted string", "has a quote that is not closed", "in key=value pairs, a value with spaces stands in '…', with \\' for a quote"},
		{"keyword/value", "has a word that is not key=value", "in key=value pairs, a value with spaces stands in '…', with \\' for a quote"},
		{"IPv6", "has an IPv6 address without both brackets", "postgres://user@[::1]:5432/database"},
	} {
		if strings.Contains(message, fault.sign) {
			return a.fault(fault.what, fault.hint)
		}
	}
	return a.fault("cannot be parsed", "")
}

// What libpq understands itself and pgx passes on to the server, which then refuses the connection.
var (
	// Without these the connection is the same one, so they are left out.
	droppedParameters = []string{
		"client_encoding", "fallback_application_name", "gssdelegation", "gsslib", "keepalives", "keepalives_count",
		"keepalives_idle", "keepalives_interval", "load_balance_hosts", "sslcompression", "tcp_user_timeout",
	}

	// Without these it could lead elsewhere, or be less safe than was asked for.
	refusedParameters = map[string]string{
		"gssencmode":               "limitctl does not encrypt with GSSAPI: set gssencmode=disable, and sslmode to what you need",
		"hostaddr":                 "give the address as host; to check a certificate's name against another, use sslmode=verify-ca",
		"oauth_client_id":          "limitctl cannot log in with OAuth: use another login",
		"oauth_client_secret":      "limitctl cannot log in with OAuth: use another login",
		"oauth_issuer":             "limitctl cannot log in with OAuth: use another login",
		"oauth_scope":              "limitctl cannot log in with OAuth: use another login",
		"replication":              "limitctl needs an ordinary connection: leave it out",
		"requirepeer":              "limitctl cannot check the socket's owner: leave it out if you trust the socket's directory",
		"requiressl":               "use sslmode=require",
		"scram_client_key":         "limitctl cannot log in with a SCRAM key: use a password",
		"scram_server_key":         "limitctl cannot log in with a SCRAM key: use a password",
		"ssl_max_protocol_version": "limitctl uses TLS 1.2 or newer: leave it out",
		"ssl_min_protocol_version": "limitctl uses TLS 1.2 or newer: leave it out if that is enough",
		"sslcrl":                   "limitctl cannot check revocation lists: leave it out if you accept that",
		"sslcrldir":                "limitctl cannot check revocation lists: leave it out if you accept that",
		"sslkeylogfile":            "limitctl does not write TLS keys: leave it out",
	}
)

func refusedParameter(name, from, key string) error {
	p := usageError(fmt.Sprintf("%s in %s: limitctl cannot honour it", name, from), refusedParameters[key])
	p.detail = "It decides where or how safely to connect, so it is not left out silently."
	return p
}

// checkParameters takes out of params what would reach the server by mistake.
func (a address) checkParameters(params map[string]string) (notes []string, err error) {
	var dropped []string
	for _, name := range sortedKeys(params) {
		key := strings.ToLower(name)
		switch {
		case !parameterName.MatchString(name):
			return nil, a.fault("has a parameter with a name that cannot be one", "")
		case key == "gssencmode" && params[name] != "require",
			slices.Contains(droppedParameters, key),
			strings.HasPrefix(key, "pool_"):
			dropped = append(dropped, name)
			delete(params, name)
		case refusedParameters[key] != "":
			return nil, refusedParameter(name, a.from, key)
		}
	}
	if len(dropped) > 0 {
		notes = append(notes, fmt.Sprintf("left out of %s, as it means nothing here: %s", a.from, strings.Join(dropped, ", ")))
	}
	return notes, nil
}

// statementTimeout is what the address, or PGOPTIONS, says about it, if they do.
func statementTimeout(params map[string]string) (time.Duration, bool) {
	text, found := params["statement_timeout"]
	if m := optionTimeout.FindAllStringSubmatch(params["options"], -1); !found && m != nil {
		text, found = m[len(m)-1][1], true
	}
	if !found {
		return 0, false
	}
	text = strings.Trim(text, `'"`)
	if plainNumber.MatchString(text) {
		text += "ms" // the unit of the setting
	}
	d, err := parseDuration(text)
	return d, err == nil
}

var (
	optionTimeout = regexp.MustCompile(`(?:-c\s*|--)statement[_-]timeout=(\S+)`)
	plainNumber   = regexp.MustCompile(`^\d+$`)
)

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
