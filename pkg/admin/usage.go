package admin

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

// Usage is the document of GET /v1/usage.
type Usage struct {
	operate.UsagePage
	Replicas []client.Replica `json:"replicas,omitempty"` // only of a fleet
}

const usagePath = "/v1/usage"

// cursor says where the next page of a Usage begins. Its text is base64 of its JSON.
type cursor struct {
	Rule string `json:"rule"`
	Hash string `json:"hash,omitempty"` // of the rules in force
	At   string `json:"at,omitempty"`   // for [operate.Operator.Usage]
	// Of are the cursors of the replicas that have more, by their addresses; only of a fleet.
	Of map[string]string `json:"of,omitempty"`
}

func (c cursor) String() string {
	text, _ := json.Marshal(c) // it has strings alone
	return base64.RawURLEncoding.EncodeToString(text)
}

// at reads the cursor of the query, which is for a fleet or for one process.
func (q *Query) at(fleet bool) (c cursor, err error) {
	if q.Cursor == "" {
		return c, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	switch {
	case err != nil:
		return c, invalid("the cursor is none of an earlier answer: begin without a cursor")
	case c.Rule != q.Rule:
		return c, invalid("the cursor is of the rule %s and not of %s: begin without a cursor", c.Rule, q.Rule)
	case fleet != (c.Of != nil):
		return c, invalid("the cursor is of an answer for all replicas, or of one process: want the same fleet as before")
	}
	return c, nil
}

func (a *API) usage(ctx context.Context, q *Query) (any, error) {
	if q.Rule == "" {
		return nil, invalid("rule is empty: want the path of a rule, such as shop.plan_free.user")
	}
	share, err := strconv.ParseFloat(cmp.Or(q.Above, "0"), 64)
	if err != nil || !(share >= 0) {
		return nil, invalid("above is %q: want the part of a limit that is used, such as 0.8", q.Above)
	}
	c := callerOf(ctx)
	switch {
	case c.bound != nil && q.Cursor != "":
		return nil, c.bound.refusal("its usage is one page, without a cursor")
	case !q.Fleet:
		page, err := a.usageHere(ctx, q, share)
		return Usage{UsagePage: page}, err
	case c.bound == nil && a.options.Limits.SharesStore(): // one replica reads the keys of all
		page, err := a.usageHere(ctx, q, share)
		_, address := here(&c)
		return Usage{page, []client.Replica{{Address: address, OK: true, Name: a.host}}}, err
	}
	return a.usageOfFleet(ctx, q, share)
}

// usageHere is the usage that this process tells.
func (a *API) usageHere(ctx context.Context, q *Query, above float64) (page operate.UsagePage, err error) {
	c, err := q.at(false)
	if err != nil {
		return page, err
	}
	if b := callerOf(ctx).bound; b != nil {
		return a.usageKnown(ctx, q, above, b)
	}
	hash := ""
	if in := a.options.Rules(); in != nil {
		hash = in.Hash
	}
	if q.Cursor != "" && c.Hash != hash {
		return page, status.Error(codes.Aborted, "the rules have changed since the cursor was given: begin without a cursor")
	}
	if err := a.scan(ctx); err != nil {
		return page, err
	}
	defer a.scanning.Release(1)
	page, err = a.options.Limits.Usage(ctx, q.Rule, above, q.N, c.At)
	if err = envoy.Error(err); status.Code(err) == codes.NotFound {
		err = cmp.Or(a.knowsRule(q.Rule), err)
	}
	if page.Cursor != "" {
		page.Cursor = cursor{Rule: q.Rule, Hash: hash, At: page.Cursor}.String()
	}
	return page, err
}

// usageKnown is the usage of the counters of a binding that the memories know, those used most first,
// without a scan. It looks for no more after half a second.
func (a *API) usageKnown(ctx context.Context, q *Query, above float64, b *binding) (page operate.UsagePage, err error) {
	page.Rows = []operate.Used{}
	begun := time.Now()
	wanted := func(m *service.Remembered) bool { return m.Rule == q.Rule && a.wanted(b, m) }
	for _, m := range a.remembered("", q.N, wanted) {
		question := operate.About(m.Domain, service.Descriptor{Entries: m.Entries})
		rows, err := a.options.Limits.UsageOf(ctx, a.completed(&question), above)
		if err != nil {
			return page, status.Error(codes.Unavailable, "the store cannot tell the counters")
		}
		page.Rows = append(page.Rows, rows...)
		if time.Since(begun) > time.Second/2 {
			break
		}
	}
	slices.SortStableFunc(page.Rows, func(x, y operate.Used) int { return cmp.Compare(y.Share, x.Share) })
	page.Rows = page.Rows[:min(q.N, len(page.Rows))]
	return page, nil
}

// usageOfFleet has the rows of all replicas, each of which tells a part of q.N. A replica that does not
// answer the first page is named; if it does not answer a later one, that is the error.
func (a *API) usageOfFleet(ctx context.Context, q *Query, above float64) (any, error) {
	from, err := q.at(true)
	if err != nil {
		return nil, err
	}
	c := callerOf(ctx)
	at, _ := here(&c)
	ask, number := from.Of, len(from.Of)
	if q.Cursor == "" {
		ask, number = map[string]string{"": ""}, len(a.options.Fleet.peers(at))+1
	}
	if q.N < number && c.bound == nil {
		return nil, invalid("n is %d: want at least %d, one for each replica", q.N, number)
	}
	sum, next := Usage{UsagePage: operate.UsagePage{Rows: []operate.Used{}}}, map[string]string{}
	for _, address := range slices.Sorted(maps.Keys(ask)) {
		one := Query{Rule: q.Rule, Above: q.Above, N: max(1, q.N/max(1, number)), Cursor: ask[address]}
		peers := a.askPeers(ctx, address, one.To(usagePath), nil, func() ([]byte, error) {
			page, err := a.usageHere(ctx, &one, above)
			if err != nil {
				return nil, err
			}
			return encode(page)
		})
		for i := range peers {
			if p := &peers[i]; p.failed != nil && (p.own || address != "") {
				return nil, p.failure()
			}
		}
		if len(peers) == 0 {
			return nil, status.Errorf(codes.Aborted, "the fleet has no replica %s any more: begin without a cursor", address)
		}
		all, replicas := documents[Usage](peers)
		sum.Replicas = append(sum.Replicas, replicas...)
		for i := range all {
			sum.add(all[i].Address, &all[i].Document.UsagePage, a.options.Limits.SharesStore())
			if more := all[i].Document.Cursor; more != "" {
				next[all[i].Address] = more
			}
		}
	}
	if len(next) > 0 {
		sum.Cursor = cursor{Rule: q.Rule, Of: next}.String()
	}
	return sum, nil
}

// add adds the page of a replica, without the counters of a shared store that other replicas have told.
func (u *Usage) add(address string, page *operate.UsagePage, shared bool) {
	u.Hidden += page.Hidden
	for _, row := range page.Rows {
		known := func(o operate.Used) bool {
			return o.Replica != address && o.Domain == row.Domain && o.Name == row.Name && o.Limit == row.Limit &&
				slices.Equal(o.Entries, row.Entries)
		}
		if row.Replica = address; !shared || !slices.ContainsFunc(u.Rows, known) {
			u.Rows = append(u.Rows, row)
		}
	}
}

// failure is why a replica has not answered, as the error of the whole.
func (p *peer) failure() error {
	problem := (*client.Problem)(nil)
	switch {
	case p.own:
		return p.failed
	case !errors.As(p.failed, &problem):
		return status.Errorf(codes.Unavailable, "the replica %s does not answer: %s", p.Address, p.Error)
	case problem.Code == "ABORTED":
		return status.Errorf(codes.Aborted, "the replica %s: %s", p.Address, problem.Message)
	}
	return status.Errorf(codes.Unavailable, "the replica %s: %s", p.Address, problem.Message)
}
