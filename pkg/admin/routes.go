package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/top"
)

// routes are all methods. Of two with the same path the second is for callers who
// accept server-sent events.
var routes = []route{
	{http.MethodGet, "/v1/status", reader, refused, "history range", merged(unary((*API).status), mergeStatus)},
	{http.MethodGet, "/v1/rules", reader, refused, "q offset", rows(1000, 1000, merged(unary((*API).rules), mergeRules))},
	{http.MethodGet, "/v1/top", reader, refused, "by rule", rows(20, top.MaxRows, merged(unary((*API).top), mergeTop))},
	{http.MethodGet, "/v1/audit", reader, refused, "", rows(maxAudited, math.MaxInt, merged(unary((*API).auditLog), mergeAudit))},
	{http.MethodGet, "/v1/history", reader, refused, "since", rows(200, events.Kept, merged(unary((*API).history), mergeHistory))},
	{http.MethodGet, "/v1/grants", reader, refused, "", merged(unary((*API).grants), mergeGrants)},
	{http.MethodGet, "/v1/find", reader, narrowFound, "q", rows(20, maxFound, orAlone(merged(unary((*API).find), mergeFound)))},
	{http.MethodGet, "/v1/why", reader, narrowWhy, "q since", orAlone(merged(unary((*API).why), mergeWhy))},
	{http.MethodGet, usagePath, reader, narrowUsage, "rule above cursor fleet", rows(1000, 1000, unary((*API).usage))},
	{http.MethodGet, "/v1/denials", reader, refused, "since rule q follow group", rows(100, maxDenials, merged(unary((*API).denials), mergeDenials))},
	{http.MethodGet, "/v1/denials", reader, refused, "since rule q follow n fleet", stream((*API).followDenials)},
	{http.MethodGet, "/v1/events", reader, refused, "", stream((*API).watch)},
	{http.MethodPost, "/v1/explain", reader, asIs, "", unary((*API).explain)},
	{http.MethodPost, "/v1/get", reader, asIs, "", unary((*API).get)},
	{http.MethodPost, "/v1/reset", writer, refused, "", unary((*API).reset)},
	{http.MethodPost, "/v1/reset", writer, refused, "", stream((*API).resetMatchingStream)},
	{http.MethodPost, "/v1/grant", writer, refused, "", unary((*API).grant)},
	{http.MethodPost, "/v1/revoke", writer, refused, "", unary((*API).revoke)},
	{http.MethodPost, forgetPath, writer, refused, "", unary((*API).forget)},
}

// unary is a method that returns its only document.
func unary[R any](method func(*API, context.Context, *R) (any, error)) handler {
	h := stream(func(a *API, ctx context.Context, request *R, send send) error {
		document, err := method(a, ctx, request)
		if err != nil {
			return err
		}
		return send(document)
	})
	h.streams = false
	return h
}

// stream is a method that sends any number of documents. It takes a *Query for a GET, else the body.
func stream[R any](method func(*API, context.Context, *R, send) error) handler {
	answer := func(a *API, ctx context.Context, request any, send send) error {
		return method(a, ctx, request.(*R), send)
	}
	return handler{streams: true, request: func() any { return new(R) }, answer: answer}
}

// merged is h with a function that makes one document of those of the replicas that
// answered, at least one. replicas are all replicas.
func merged[D, R any](h handler, merge func(q *Query, all []client.Answer[D], replicas []client.Replica) R) handler {
	h.merge = func(q *Query, peers []peer) any {
		all, replicas := documents[D](peers)
		return merge(q, all, replicas)
	}
	return h
}

// orAlone is h, merged, which callers ask for the fleet without knowing whether there is one: without a
// fleet the process answers alone.
func orAlone(h handler) handler {
	h.alone = true
	return h
}

// rows is h with a number of rows that the query can choose by n.
func rows(usual, most int, h handler) handler {
	h.rows, h.most = usual, most
	return h
}

// setRows checks the number of rows that q asks for, and sets it to the usual one if it is 0.
func (h *handler) setRows(q *Query) error {
	if h.most == 0 {
		return nil
	}
	if q.N = cmp.Or(q.N, h.rows); q.N < 1 || q.N > h.most {
		return invalid("n is %d: want 1 to %d", q.N, h.most)
	}
	return nil
}

// names are the names that the route's query may have.
func (to *route) names() []string {
	names := strings.Fields(to.query)
	if to.most > 0 {
		names = append(names, "n")
	}
	if to.merge != nil {
		names = append(names, "fleet", "replica")
	}
	return names
}

// routeAt is the route of a request over HTTP, or nil.
func routeAt(r *http.Request) (found *route) {
	events := strings.HasPrefix(r.Header.Get("Accept"), eventStream)
	for i := range routes {
		if to := &routes[i]; to.path == r.URL.Path && (found == nil || events) {
			found = to
		}
	}
	return found
}

// route answers a request over HTTP whose caller is known.
func (l *listener) route(w http.ResponseWriter, r *http.Request) {
	to, c := routeAt(r), callerOf(r.Context())
	verbs := []string{http.MethodGet, http.MethodHead}
	if to != nil && to.verb == http.MethodPost {
		verbs = []string{http.MethodPost}
	}
	switch {
	case to == nil && !isPage(r.URL.Path):
		refuse(w, r, status.Error(codes.NotFound, "there is no such path"))
	case !slices.Contains(verbs, r.Method):
		w.Header().Set("Allow", strings.Join(verbs, ", "))
		refuse(w, r, overHTTP(http.StatusMethodNotAllowed, codes.Unimplemented, "want the method %s", verbs[0]))
	case c.bound != nil && to.narrow == nil:
		refuse(w, r, c.bound.refusal("it may get, explain, find, ask why and for usage of that, and nothing else"))
	case c.role < to.role:
		refuse(w, r, errReadOnly)
	default:
		l.answer(w, r, to)
	}
}

// answer calls the method of a route.
func (l *listener) answer(w http.ResponseWriter, r *http.Request, to *route) {
	request, err := to.read(w, r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if to.streams {
		l.events(w, r, to, request)
		return
	}
	var document any
	err = l.call(r.Context(), to, request, func(d any) error { document = d; return nil })
	if err != nil {
		refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, document)
}

const (
	// eventStream is the media type of server-sent events.
	eventStream = "text/event-stream"
	// sendWithin is the longest time that a caller may take to read an event.
	sendWithin = 10 * time.Second
)

// events serves the documents of a stream as server-sent events without names. An error
// after the first of them is the event error.
func (l *listener) events(w http.ResponseWriter, r *http.Request, to *route, request any) {
	w.Header().Set("Content-Type", eventStream)
	if r.Method == http.MethodHead {
		return
	}
	begun := false
	connection := http.NewResponseController(w)
	write := func(name string, document any) error {
		text := ": open\n\n" // a comment
		if document != nil {
			data, err := encode(document)
			if err != nil {
				return err
			}
			text = fmt.Sprintf("%sdata: %s\n\n", name, data)
		}
		begun = true
		_ = connection.SetWriteDeadline(time.Now().Add(sendWithin)) // HTTP/2 through h2c lacks it
		_, err := io.WriteString(w, text)
		return errors.Join(err, connection.Flush())
	}
	err := l.call(r.Context(), to, request, func(document any) error { return write("", document) })
	switch {
	case err == nil:
	case begun:
		_ = write("event: error\n", problemOf(err))
	default:
		refuse(w, r, err)
	}
}
