package commands

import (
	"net"
	"testing"
	"time"

	"example.org/rls/pkg/admin/client"
)

// Of a process that does not answer the screen has an error, and no state with zeros.
func TestTopOfNobodyHasNoStatus(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	c := &topCmd{Addr: []string{addr}, Access: Access{Timeout: time.Second}}
	t.Setenv("RLS_TOKEN", "0123456789abcdef")
	api, err := c.client(addr)
	if err != nil {
		t.Fatal(err)
	}
	all, err := client.NewFleet(c.Addr, c.open)
	if err != nil {
		t.Fatal(err)
	}
	if answer := (&topSource{c, api, all}).Top(t.Context(), "denied"); answer.Err == nil || answer.Status != nil {
		t.Errorf("error %v, status %+v: want an error and no status", answer.Err, answer.Status)
	}
}
