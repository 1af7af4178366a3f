package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "example.org/rls/pkg/admin/adminpb"
)

const (
	// mostBytes bounds the body of a request, and bodyWithin the time to read it.
	mostBytes  = 1 << 20
	bodyWithin = 10 * time.Second
)

// route is a method of the API over HTTP.
type route struct {
	verb string // GET or POST
	role role
	// request returns an empty message for the body or the query.
	request func() proto.Message
	// answer returns the document of the answer.
	answer func(a *API, ctx context.Context, request proto.Message) (any, error)
}

// routes are all paths but those of the page and /v1/events.
var routes = map[string]route{
	"/v1/status":  {http.MethodGet, reader, message[pb.StatusRequest], answer((*API).status)},
	"/v1/rules":   {http.MethodGet, reader, message[pb.RulesRequest], answer((*API).rules)},
	"/v1/top":     {http.MethodGet, reader, message[pb.TopRequest], answer((*API).top)},
	"/v1/audit":   {http.MethodGet, reader, message[pb.AuditRequest], answer((*API).auditLog)},
	"/v1/explain": {http.MethodPost, reader, message[pb.LookRequest], answer((*API).explain)},
	"/v1/get":     {http.MethodPost, reader, message[pb.LookRequest], answer((*API).get)},
	"/v1/reset":   {http.MethodPost, writer, message[pb.ResetRequest], answer((*API).reset)},
	"/v1/grant":   {http.MethodPost, writer, message[pb.GrantRequest], answer((*API).grant)},
}

const eventsPath = "/v1/events"

// message returns an empty message of the type T.
func message[T any, M interface {
	*T
	proto.Message
}]() proto.Message {
	return M(new(T))
}

// answer lets a method take a message of any type; it is called with its own type only.
func answer[M proto.Message](method func(*API, context.Context, M) (any, error)) func(*API, context.Context, proto.Message) (any, error) {
	return func(a *API, ctx context.Context, request proto.Message) (any, error) {
		return method(a, ctx, request.(M))
	}
}

// route answers a request over HTTP whose caller is known.
func (l *listener) route(w http.ResponseWriter, r *http.Request) {
	to, known := routes[r.URL.Path]
	verbs := []string{to.verb}
	switch {
	case r.URL.Path == eventsPath, r.URL.Path == "/", strings.HasPrefix(r.URL.Path, "/assets/"):
		known, verbs = true, []string{http.MethodGet}
	}
	if verbs[0] == http.MethodGet {
		verbs = append(verbs, http.MethodHead)
	}
	switch {
	case !known:
		refuse(w, r, status.Error(codes.NotFound, "there is no such path"))
	case !slices.Contains(verbs, r.Method):
		w.Header().Set("Allow", strings.Join(verbs, ", "))
		refuse(w, r, overHTTP(http.StatusMethodNotAllowed, codes.Unimplemented, "want the method %s", verbs[0]))
	case callerOf(r.Context()).role < to.role:
		refuse(w, r, errReadOnly)
	case r.URL.Path == eventsPath:
		l.events(w, r)
	default:
		l.answer(w, r, to)
	}
}

// answer calls the method of a route.
func (l *listener) answer(w http.ResponseWriter, r *http.Request, to route) {
	request := to.request()
	if err := read(w, r, request); err != nil {
		refuse(w, r, err)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if reset, ok := request.(*pb.ResetRequest); ok && wantsEvents(r) {
		l.matchingEvents(w, r, reset)
		return
	}
	document, err := l.call(r.URL.Path, func() (any, error) { return to.answer(l.API, r.Context(), request) })
	if err != nil {
		refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, document)
}

// read reads a message from the body of a POST, else from the query.
func read(w http.ResponseWriter, r *http.Request, to proto.Message) error {
	if r.Method != http.MethodPost {
		return readQuery(r.URL.RawQuery, to.ProtoReflect())
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return overHTTP(http.StatusRequestEntityTooLarge, codes.ResourceExhausted, "the body is too large: want at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return invalid("the body cannot be read: %v", err)
	}
	if err := protojson.Unmarshal(body, to); err != nil {
		return invalid("the body is wrong: %s", strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0"))
	}
	return nil
}

// readQuery sets the fields of a message that have one value each.
func readQuery(query string, to protoreflect.Message) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return invalid("the query is wrong: %v", err)
	}
	for name, given := range values {
		field := to.Descriptor().Fields().ByTextName(name)
		if field == nil {
			return invalid("the query has an unknown name %q", name)
		}
		text := given[len(given)-1]
		if field.Kind() == protoreflect.StringKind {
			to.Set(field, protoreflect.ValueOfString(text))
			continue
		}
		number, err := strconv.ParseInt(text, 10, 32)
		if err != nil && text != "" {
			return invalid("%s is %q: want a whole number", name, text)
		}
		to.Set(field, protoreflect.ValueOfInt32(int32(number)))
	}
	return nil
}

// events serves the updates of the status.
func (l *listener) events(w http.ResponseWriter, r *http.Request) {
	err := l.stream(r.Context(), r.URL.Path, func(ctx context.Context) error {
		if l.options.Status == nil {
			return errNoStatus
		}
		if r.Method != http.MethodHead {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			l.options.Status.Events(w, r.WithContext(ctx))
		}
		return nil
	})
	if err != nil {
		refuse(w, r, err)
	}
}
