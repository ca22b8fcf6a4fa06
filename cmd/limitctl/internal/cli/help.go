package cli

// usageTemplate is cobra's without aliases, with examples first and the exit codes last.
const usageTemplate = `{{if .HasExample}}Examples:
{{.Example}}

{{end}}Usage:
  {{if .Runnable}}{{if not .HasAvailableSubCommands}}{{.UseLine}}{{else}}{{.CommandPath}} <command>{{end}}{{else}}{{.CommandPath}} <command>{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}}  {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

Exit codes:
  0    done, also when there was nothing to show
  1    failed
  2    mistake in what was typed, or the answer to a question was no
  4    cannot connect, or not permitted
  8    pglimit is missing in the database, out of date, or changed by hand
  130  interrupted
`

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}`
