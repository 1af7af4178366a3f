package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/events"
	states "example.org/rls/pkg/admin/status"
)

const (
	// maxBody bounds the body of a request in bytes, and bodyWithin the time to read it.
	maxBody    = 1 << 20
	bodyWithin = 10 * time.Second
)

// routes are all methods. Of two with the same path the second is for callers who
// accept server-sent events.
var routes = []route{
	{"Status", http.MethodGet, "/v1/status", reader, merged(one((*API).status), states.MergeDocuments)},
	{"Rules", http.MethodGet, "/v1/rules", reader, rows(1000, 1000, merged(one((*API).rules), states.MergeListings))},
	{"Top", http.MethodGet, "/v1/top", reader, rows(20, maxTop, merged(one((*API).top), mergeTop))},
	{"Audit", http.MethodGet, "/v1/audit", reader, rows(maxAudited, math.MaxInt32, merged(one((*API).auditLog), mergeAudit))},
	{"History", http.MethodGet, "/v1/history", reader, rows(200, events.Kept, merged(one((*API).history), mergeHistory))},
	{"Grants", http.MethodGet, "/v1/grants", reader, merged(one((*API).grants), mergeGrants)},
	{"Find", http.MethodGet, "/v1/find", reader, rows(20, maxFound, one((*API).find))},
	{"Denials", http.MethodGet, "/v1/denials", reader, rows(100, maxDenials, merged(one((*API).denials), mergeDenials))},
	{"FollowDenials", http.MethodGet, "/v1/denials", reader, several((*API).followDenials)},
	{"Watch", http.MethodGet, "/v1/events", reader, several((*API).watch)},
	{"Explain", http.MethodPost, "/v1/explain", reader, one((*API).explain)},
	{"Get", http.MethodPost, "/v1/get", reader, one((*API).get)},
	{"Reset", http.MethodPost, "/v1/reset", writer, one((*API).reset)},
	{"ResetMatching", http.MethodPost, "/v1/reset", writer, several((*API).resetMatchingStream)},
	{"Grant", http.MethodPost, "/v1/grant", writer, one((*API).grant)},
	{"Forget", http.MethodPost, forgetPath, writer, one((*API).forget)},
}

// one is a method that returns its only document.
func one[M proto.Message](method func(*API, context.Context, M) (any, error)) handler {
	return several(func(a *API, ctx context.Context, request M, send send) error {
		document, err := method(a, ctx, request)
		if err != nil {
			return err
		}
		return send(document)
	})
}

// several lets a method take a message of any type; it is called with its own type only.
func several[M proto.Message](method func(*API, context.Context, M, send) error) handler {
	return handler{answer: func(a *API, ctx context.Context, request proto.Message, send send) error {
		return method(a, ctx, request.(M), send)
	}}
}

// merged is h with a function that makes one document of those of the replicas that
// answered, at least one. replicas are all replicas.
func merged[M proto.Message, D, R any](h handler, merge func(request M, all []client.Answer[D], replicas []client.Replica) R) handler {
	h.merge = func(request proto.Message, peers []peer) any {
		all, replicas := documents[D](peers)
		return merge(request.(M), all, replicas)
	}
	return h
}

// rows is h with a number of rows that the request can choose in its field n.
func rows(usual, most int32, h handler) handler {
	h.rows, h.most = usual, most
	return h
}

// setRows checks the field n of a request, and sets it to the usual number if it is 0.
func (h *handler) setRows(request protoreflect.Message) error {
	if h.most == 0 {
		return nil
	}
	field := request.Descriptor().Fields().ByName("n")
	n := cmp.Or(int32(request.Get(field).Int()), h.rows)
	if n < 1 || n > h.most {
		return invalid("n is %d: want 1 to %d", n, h.most)
	}
	request.Set(field, protoreflect.ValueOfInt32(n))
	return nil
}

func (r *route) describe() protoreflect.MethodDescriptor {
	return methods.ByName(protoreflect.Name(r.method))
}

// streams reports whether the method sends any number of documents.
func (r *route) streams() bool { return r.describe().IsStreamingServer() }

// messages returns empty messages for the request and for a document of the answer.
func (r *route) messages() (request, document proto.Message) {
	return message(r.describe().Input()), message(r.describe().Output())
}

// methods describes the methods of the gRPC service.
var methods = pb.File_pkg_admin_adminpb_admin_proto.Services().ByName("Admin").Methods()

func message(of protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		panic(err) // the package of each generated message registers it
	}
	return kind.New().Interface()
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
	to := routeAt(r)
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
	case callerOf(r.Context()).role < to.role:
		refuse(w, r, errReadOnly)
	default:
		l.answer(w, r, to)
	}
}

// answer calls the method of a route.
func (l *listener) answer(w http.ResponseWriter, r *http.Request, to *route) {
	request, _ := to.messages()
	if err := read(w, r, request); err != nil {
		refuse(w, r, err)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if to.streams() {
		l.events(w, r, to, request)
		return
	}
	var document any
	err := l.call(r.Context(), to, request, func(d any) error { document = d; return nil })
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
func (l *listener) events(w http.ResponseWriter, r *http.Request, to *route, request proto.Message) {
	w.Header().Set("Content-Type", eventStream)
	if r.Method == http.MethodHead {
		return
	}
	begun := false
	connection := http.NewResponseController(w)
	write := func(name string, document any) error {
		text := ": open\n\n" // a comment
		if document != opened {
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

// read reads a message from the body of a POST, else from the query.
func read(w http.ResponseWriter, r *http.Request, to proto.Message) error {
	if r.Method != http.MethodPost {
		return readQuery(r.URL.RawQuery, to.ProtoReflect())
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return overHTTP(http.StatusRequestEntityTooLarge, codes.ResourceExhausted, "the body is too large: want at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return invalid("the body cannot be read: %v", err)
	}
	if err := protojson.Unmarshal(body, to); err != nil {
		wrong := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
		if strings.Contains(wrong, "bytes field") {
			wrong += `; want the bytes in base64, such as "YW5u/w=="`
		}
		return invalid("the body is wrong: %s", wrong)
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
		switch field.Kind() {
		case protoreflect.StringKind:
			to.Set(field, protoreflect.ValueOfString(text))
		case protoreflect.BoolKind:
			is, err := strconv.ParseBool(text)
			if err != nil && text != "" {
				return invalid("%s is %q: want true or false", name, text)
			}
			to.Set(field, protoreflect.ValueOfBool(is))
		default:
			number, err := strconv.ParseInt(text, 10, 32)
			if err != nil && text != "" {
				return invalid("%s is %q: want a whole number", name, text)
			}
			to.Set(field, protoreflect.ValueOfInt32(int32(number)))
		}
	}
	return nil
}
