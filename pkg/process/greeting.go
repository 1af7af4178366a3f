package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"example.org/rls/internal/pace"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/server"
)

// greet tells a person at the terminal the address of the page, with a link that signs in once, and a
// command that asks the service. It waits two seconds for the rules, from which the command comes.
func (p *process) greet(ctx context.Context, srv *server.Server) error {
	if p.person == nil {
		return nil
	}
	for round := range pace.Every(ctx, 50*time.Millisecond) {
		if p.limits.Tree() != nil || round == 40 {
			break
		}
	}
	if p.linked() {
		at := srv.Addr(onAdmin).(*net.TCPAddr)
		scheme := "http"
		if p.Admin.UseTLS {
			scheme = "https"
		}
		// The secret is in the fragment, which browsers do not send.
		_, _ = fmt.Fprintf(p.person, "page: %s://%s/#link=%s (opens once, within %.0f minutes)\n",
			scheme, hostPort(p.Admin.Host, at.Port), p.secretOfLink, admin.LinkFor.Minutes())
	}
	domain, entries := example(p.limits.Tree())
	if addr := srv.Addr("gRPC"); addr != nil && domain != "" && !p.GRPC.ServerUseTLS {
		_, _ = fmt.Fprintf(p.person, "try:  %s client%s --domain %s --descriptor %s\n",
			os.Args[0], flagOf(addr), terminal.Word(domain), terminal.Word(descriptors.Argument(entries)))
	}
	return nil
}

// flagOf is the flag with which the client asks at an address; "" for the client's default.
func flagOf(addr net.Addr) string {
	tcp, is := addr.(*net.TCPAddr)
	switch {
	case !is:
		return " --addr unix:" + addr.String()
	case !tcp.IP.IsUnspecified():
		return " --addr " + tcp.String()
	case tcp.Port == 8081:
		return ""
	}
	return fmt.Sprintf(" --addr localhost:%d", tcp.Port)
}

// example is a descriptor that a rule limits, of the fewest entries among the first 1,000 nodes of the
// rules, and its domain. The domain is "" without one.
func example(tree *descriptors.Tree) (domain string, entries []descriptors.Entry) {
	left := 1000
	var walk func(d *descriptors.Domain, n *descriptors.Node)
	walk = func(d *descriptors.Domain, n *descriptors.Node) {
		for _, child := range n.Children() {
			if left--; left < 0 {
				return
			}
			way := child.Way()
			if entries != nil && len(way) >= len(entries) {
				continue
			}
			for i, e := range way {
				way[i].Key = strings.ReplaceAll(e.Key, "*", "x")
				if way[i].Value = strings.ReplaceAll(e.Value, "*", "x"); e.Value == "" {
					way[i].Value = "me"
				}
			}
			r := d.Match(way)
			text := d.Name + descriptors.Argument(way)
			if r != nil && r.Base() == child.Rule && !r.Unlimited && !r.Reserves() && r.Limits[0].Requests > 0 && terminal.Visible(text) == text {
				domain, entries = d.Name, way
			}
			walk(d, child)
		}
	}
	for _, d := range tree.Domains() {
		walk(d, d.Root())
	}
	return domain, entries
}
