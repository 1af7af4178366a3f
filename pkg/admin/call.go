package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/pace"
	"example.org/rls/pkg/admin/client"
	states "example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/top"
)

var (
	errBusy  = status.Error(codes.ResourceExhausted, "too many calls of the admin API are under way: try again")
	errNoTop = status.Error(codes.Unimplemented, "this process counts no heavy hitters because of TOP_KEYS=0")
)

// send sends a document of an answer to the caller. With nil it sends the headers alone, so that the
// caller of a stream learns at once that the stream has begun, though no document may come for long.
type send func(document any) error

// route is a method of the API.
type route struct {
	verb string // GET or POST
	path string
	role role
	// narrow makes the answer for a bound token; nil: the route is not for such tokens.
	narrow narrowing
	query  string // the names that its query may have, besides n (rows), fleet and replica (merged)
	handler
}

// handler answers requests. A request with fleet is answered by all replicas if the handler
// is made by merged.
type handler struct {
	request func() any // empty, of the type that answer takes: *Query for a GET, else the body
	answer  func(a *API, ctx context.Context, request any, send send) error
	streams bool
	merge   func(*Query, []peer) any // nil: the method has no fleet
	alone   bool                     // without a fleet it answers a question to the fleet alone
	// rows is how many rows the answer has unless the query says so, and most how many it
	// can have; both are 0 if the query does not say it.
	rows, most int
}

// call answers a request by send, which is called once unless the method streams. A
// panic is an error INTERNAL without details, and logged.
func (a *API) call(ctx context.Context, to *route, request any, send send) (err error) {
	calls := a.calls
	if to.streams {
		calls = a.streams
	}
	if !calls.TryAcquire(1) {
		return errBusy
	}
	defer calls.Release(1)
	defer func() {
		if p := recover(); p != nil {
			a.options.Log.Error("panic", "in", to.path, "panic", p, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error: the log of the process has more")
		}
	}()
	if to.streams {
		var cancel context.CancelFunc
		ctx, cancel = a.whileAllowed(ctx)
		defer cancel()
	}
	if b := callerOf(ctx).bound; b != nil {
		whole := send
		send = func(document any) error { return whole(to.narrow(a, b, document)) }
	}
	q, _ := request.(*Query)
	if q == nil {
		return to.answer(a, ctx, request, send)
	}
	if err := to.setRows(q); err != nil {
		return err
	}
	if q.Fleet && to.merge != nil && (a.options.Fleet != nil || !to.alone) {
		return a.answerForFleet(ctx, to, q, send)
	}
	return to.answer(a, ctx, q, send)
}

// answerForFleet answers a query by the documents of all replicas.
func (a *API) answerForFleet(ctx context.Context, to *route, q *Query, send send) error {
	one := *q
	one.Fleet, one.Replica = false, ""
	if to.path == "/v1/top" { // a key can be low in each replica and high in the sum
		one.N = top.MaxRows
	}
	var own json.RawMessage
	err := to.answer(a, ctx, &one, func(document any) (err error) { own, err = encode(document); return err })
	if err != nil {
		return err
	}
	peers := a.askPeers(ctx, q.Replica, one.To(to.path), nil, func() ([]byte, error) { return own, nil })
	switch {
	case len(peers) == 0:
		return status.Errorf(codes.NotFound, "the fleet has no replica %s", q.Replica)
	case len(peers) == 1 && !peers[0].OK:
		return status.Errorf(codes.Unavailable, "the replica %s does not answer: %s", peers[0].Address, peers[0].Error)
	}
	return send(to.merge(q, peers))
}

// askPeers asks each other replica once, all at once, and returns what they answered, with
// the answer of this process among them, which own makes. It returns after peerWithin, and after own. Unless
// only is "", it asks no replica but the one with this address.
func (a *API) askPeers(ctx context.Context, only, path string, body any, own func() ([]byte, error)) []peer {
	own = sync.OnceValues(own)
	answer := func(p *peer) {
		p.id, p.Name, p.own = a.id, a.host, true
		if p.json, p.failed = own(); p.failed != nil {
			p.Error = sentence(p.failed)
		}
		p.OK = p.failed == nil
	}
	c := callerOf(ctx)
	at, text := here(&c)
	all := a.options.Fleet.peers(at)
	if only != "" {
		all = slices.DeleteFunc(all, func(p peer) bool { return p.Address != only })
	}
	ctx, cancel := context.WithTimeout(ctx, peerWithin)
	defer cancel()
	var asking sync.WaitGroup
	for i := range all {
		switch p := &all[i]; {
		case p.own:
			asking.Go(func() { answer(p) })
		case p.at.IsValid():
			asking.Go(func() {
				if p.failed = p.ask(ctx, c.token, a.options.Fleet.options.TLS, path, body); p.failed != nil {
					p.OK, p.Error = false, sentence(p.failed)
				}
			})
		}
	}
	asking.Wait()
	seen := map[string]bool{"": false}
	all = slices.DeleteFunc(all, func(p peer) bool {
		again := seen[p.id]
		seen[p.id] = p.id != ""
		return again
	})
	if !seen[a.id] && (only == "" || only == text) {
		itself := peer{Replica: client.Replica{Address: text}}
		answer(&itself)
		all = slices.Insert(all, 0, itself)
	}
	return all
}

// lookEvery is the time between two looks whether the token of a stream's caller counts.
const lookEvery = time.Second

// whileAllowed returns a context that ends when the process does, or when the caller's
// token no longer counts. The caller must cancel it.
func (a *API) whileAllowed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.options.Ending, cancel)
	go func() {
		defer stop()
		defer cancel()
		for range pace.Every(ctx, lookEvery) {
			if !callerOf(ctx).stillAllowed() {
				return
			}
		}
	}()
	return ctx, cancel
}

func (a *API) status(_ context.Context, q *Query) (any, error) {
	length, known := states.Ranges[cmp.Or(q.Range, "15m")]
	switch {
	case !known:
		return nil, invalid("range is %q: want 15m, 1h or 6h", q.Range)
	case !q.History && q.Range == "":
		length = 0
	}
	return json.RawMessage(a.options.Status.JSON(length)), nil
}

func mergeStatus(_ *Query, all []client.Answer[states.Document], replicas []client.Replica) states.Document {
	return states.MergeDocuments(all, replicas)
}

func (a *API) rules(_ context.Context, q *Query) (any, error) {
	if q.Offset < 0 {
		return nil, invalid("offset is %d: want at least 0", q.Offset)
	}
	return json.RawMessage(a.options.Status.RulesJSON(q.Q, q.N, q.Offset)), nil
}

func mergeRules(q *Query, all []client.Answer[states.Listing], replicas []client.Replica) states.Listing {
	return states.MergeListings(q.N, all, replicas)
}

// watch sends the updates of the status.
func (a *API) watch(ctx context.Context, _ *Query, send send) error {
	for update := range a.options.Status.Watch(ctx) {
		if err := send(json.RawMessage(update)); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) top(_ context.Context, q *Query) (any, error) {
	if a.options.Top == nil {
		return nil, errNoTop
	}
	by := cmp.Or(q.By, "denied")
	if !slices.Contains([]string{"denied", "hits", "cost"}, by) {
		return nil, invalid("by is %q: want denied, hits or cost", by)
	}
	table := a.options.Top.Table(top.Query{By: by, Rule: q.Rule, N: q.N, Zeros: q.N >= top.MaxRows})
	if len(table.Rows) == 0 && q.Rule != "" {
		return table, a.knowsRule(q.Rule)
	}
	return table, nil
}

func (a *API) auditLog(_ context.Context, q *Query) (any, error) {
	return AuditLog{Entries: a.Last(q.N)}, nil
}
