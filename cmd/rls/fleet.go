package main

import (
	"fmt"
	"io"
	"net/url"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/client"
)

// fleetFlag is the flag of a command that can ask for all replicas.
type fleetFlag struct {
	Fleet bool `help:"Ask for all replicas: the process at --addr asks those that its ADMIN_FLEET lists. A replica that does not answer is named on stderr."`
}

// add adds the flag to a query.
func (f *fleetFlag) add(query url.Values) {
	if f.Fleet {
		query.Set("fleet", "true")
	}
}

// warnOf writes a line for each replica that is not OK, with what it did not do.
func warnOf(stderr io.Writer, replicas []client.Replica, not string) {
	for _, r := range replicas {
		if !r.OK {
			_, _ = fmt.Fprintf(stderr, "rls: replica %s %s: %s\n", terminal.Visible(r.Address), not, terminal.Visible(r.Error))
		}
	}
}

// onReplica names the replica of a row at its end; "" without one.
func onReplica(address string) string {
	if address == "" {
		return ""
	}
	return "  [" + terminal.Visible(address) + "]"
}

const (
	notAnswered = "does not answer"
	notTold     = "was not told, and may go by what it remembers"
)
