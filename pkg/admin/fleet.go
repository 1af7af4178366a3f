package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/replicas"
	"example.org/rls/pkg/top"
)

const (
	// peerWithin bounds the wait for all other replicas together, and maxPeerAnswer the answer
	// of each, in bytes.
	peerWithin    = time.Second
	maxPeerAnswer = 8 << 20
	// replicaHeader tells who answered: the id of the process and the name of its host.
	replicaHeader = "Rls-Replica"
)

// FleetOptions say where the replicas are.
type FleetOptions struct {
	// Listed are the replicas, HOST:PORT. A name with several addresses stands for all of them.
	Listed []string
	// Host and Port are where this process listens. Port is 0 if it takes a free one.
	Host string
	Port int
	// TLS is the side of a replica that asks another one: it accepts replicas only. nil asks
	// without TLS.
	TLS *tls.Config
	Log *slog.Logger
}

// Fleet knows where the replicas are, while Run runs.
type Fleet struct {
	options FleetOptions
	members []member
}

// member is an element of FleetOptions.Listed.
type member struct {
	listed string
	port   uint16
	found  *replicas.Replicas
}

// NewFleet returns a Fleet. The addresses of names are those of DNS.
func NewFleet(o FleetOptions) (*Fleet, error) {
	f := &Fleet{options: o}
	for _, listed := range o.Listed {
		host, port, err := net.SplitHostPort(listed)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, err
		}
		f.members = append(f.members, member{listed, uint16(number), replicas.New(1, host, net.DefaultResolver.LookupNetIP, o.Log)})
	}
	return f, nil
}

// Run looks names up every 10 s until ctx ends. The last answer stays.
func (f *Fleet) Run(ctx context.Context) error {
	var running errgroup.Group
	for _, m := range f.members {
		running.Go(func() error { return m.found.Run(ctx) })
	}
	return running.Wait()
}

// peer is a replica, and what it answered.
type peer struct {
	client.Replica
	at   netip.AddrPort // not valid: the name has no address
	own  bool           // it is this process
	id   string         // "" if it did not answer
	json []byte
	// failed is why it has no answer; nil if it has no address.
	failed error
}

// peers are the replicas in the order of their list, each address once. here is the address
// at which this process got the question.
func (f *Fleet) peers(here netip.AddrPort) (all []peer) {
	if f == nil {
		return nil
	}
	seen := map[netip.AddrPort]bool{}
	for _, m := range f.members {
		found := m.found.Addresses()
		if len(found) == 0 {
			all = append(all, peer{Replica: client.Replica{Address: m.listed, Error: "the name has no address"}})
		}
		for _, address := range found {
			p := peer{Replica: client.Replica{Address: m.listed}, at: netip.AddrPortFrom(address, m.port)}
			if len(found) > 1 {
				p.Address = p.at.String()
			}
			if p.own = f.isOwn(p.at, here); !seen[p.at] {
				seen[p.at] = true
				all = append(all, p)
			}
		}
	}
	return all
}

// isOwn reports whether this process listens at an address, as far as the addresses of the
// machine tell.
func (f *Fleet) isOwn(at, here netip.AddrPort) bool {
	switch listens, err := netip.ParseAddr(f.options.Host); {
	case at == here:
		return true
	case f.options.Port != 0 && int(at.Port()) != f.options.Port, f.options.Port == 0 && at.Port() != here.Port():
		return false
	case f.options.Host == "localhost":
		return at.Addr().IsLoopback()
	case err == nil && !listens.IsUnspecified():
		return at.Addr() == listens.Unmap()
	}
	local, _ := net.InterfaceAddrs()
	return at.Addr().IsLoopback() || slices.ContainsFunc(local, func(a net.Addr) bool {
		own, isIP := a.(*net.IPNet)
		return isIP && own.IP.Equal(at.Addr().AsSlice())
	})
}

var errNoPass = errors.New("the caller gave no token that could be passed on: ask over TCP with a token")

// ask asks another replica on a connection of its own, so that each call is to a replica
// whose certificate is right now.
func (p *peer) ask(ctx context.Context, token string, config *tls.Config, path string, body any) error {
	if token == "" {
		return errNoPass
	}
	at := client.New(client.Options{Network: "tcp", Address: p.at.String(), Token: token, TLS: config})
	defer at.Close()
	text, header, err := at.Fetch(ctx, path, body, maxPeerAnswer)
	if err != nil {
		return err
	}
	p.id, p.Name, _ = strings.Cut(header.Get(replicaHeader), " ")
	p.OK, p.json = true, text
	return nil
}

// sentence says why a replica did not answer.
func sentence(err error) string {
	if problem := (*client.Problem)(nil); errors.As(err, &problem) && problem.Code == "UNAUTHENTICATED" {
		return "the caller's token has no meaning there: want one ADMIN_TOKEN_FILE for all replicas"
	}
	if timeout := net.Error(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Sprintf("no answer within %v", peerWithin)
	}
	return err.Error()
}

// documents reads the documents of the replicas that answered.
func documents[D any](peers []peer) (all []client.Answer[D], replicas []client.Replica) {
	replicas = make([]client.Replica, len(peers))
	for i := range peers {
		replicas[i] = peers[i].Replica
		if !peers[i].OK {
			continue
		}
		answer := client.Answer[D]{Replica: &replicas[i]}
		if err := json.Unmarshal(peers[i].json, &answer.Document); err != nil {
			answer.OK, answer.Error = false, "the answer cannot be read: "+err.Error()
			continue
		}
		all = append(all, answer)
	}
	return all, replicas
}

// newest merges rows of all replicas: the newest n of them, n at least 0, each with the
// address of its replica. known tells the time of a row, and where it names its replica.
func newest[D, R any](all []client.Answer[D], n int, rows func(*D) []R, known func(*R) (at time.Time, replica *string)) []R {
	merged := []R{}
	for i := range all {
		of := rows(&all[i].Document)
		for j := range of {
			_, replica := known(&of[j])
			*replica = all[i].Address
		}
		merged = append(merged, of...)
	}
	slices.SortStableFunc(merged, func(x, y R) int {
		older, _ := known(&x)
		newer, _ := known(&y)
		return newer.Compare(older)
	})
	return merged[:min(n, len(merged))]
}

// TopOfAll is the document of GET /v1/top.
type TopOfAll struct {
	top.Table
	Replicas []client.Replica `json:"replicas,omitempty"` // only of a fleet
}

func mergeTop(q *Query, all []client.Answer[top.Table], replicas []client.Replica) any {
	tables := make([]top.Table, len(all))
	for i := range all {
		tables[i] = all[i].Document
	}
	sum := top.Sum(tables)
	sum.Rows = sum.Rows[:min(q.N, len(sum.Rows))]
	return TopOfAll{sum, replicas}
}
