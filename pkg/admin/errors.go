package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

func problemOf(err error) client.Problem {
	s := status.Convert(err)
	p := client.Problem{Code: rpccode.Code(s.Code()).String(), Message: descriptors.Printable(s.Message())}
	if own := (*misuse)(nil); errors.As(err, &own) {
		p.Suggestions, p.Bound = own.suggestions, own.bound
	}
	return p
}

// misuse is an error that has a status of its own, or suggestions, over HTTP.
type misuse struct {
	status      *status.Status
	http        int
	suggestions []string
	bound       string // what the caller's token is bound to, if that is why
}

// Error implements error.
func (m *misuse) Error() string { return m.status.Message() }

// GRPCStatus gives the error its code and message over gRPC.
func (m *misuse) GRPCStatus() *status.Status { return m.status }

func overHTTP(http int, code codes.Code, format string, args ...any) error {
	return &misuse{status: status.Newf(code, format, args...), http: http}
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// maxDiscarded is the most bytes that are read of the body of a refused request.
const maxDiscarded = 16 << 20

// refuse answers a request with an error, in the form of the request's protocol.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if isGRPC(r) { // a response of headers only, with the status in them
		s := status.Convert(err)
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", strconv.Itoa(int(s.Code())))
		h.Set("Grpc-Message", url.PathEscape(s.Message()))
		return
	}
	// Most clients read an answer only after they have sent the body, and the server
	// closes the connection unless it reads the body.
	_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded)
	code := runtime.HTTPStatusFromCode(status.Code(err))
	if own := (*misuse)(nil); errors.As(err, &own) {
		code = own.http
	}
	writeJSON(w, code, problemOf(err))
}

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// encode writes a document as JSON, unless it is JSON already.
func encode(document any) (json.RawMessage, error) {
	if data, done := document.(json.RawMessage); done {
		return data, nil
	}
	return json.Marshal(document)
}

// writeJSON writes a document on one line, with a line break at its end.
func writeJSON(w http.ResponseWriter, code int, document any) {
	body, err := encode(document)
	if err != nil { // only values that JSON has no form for, such as NaN
		code, body = http.StatusInternalServerError, []byte(`{"code":"INTERNAL","message":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
	_, _ = w.Write([]byte("\n"))
}

// knowsRule is an error that suggests another rule, unless a rule of that path is in force.
func (a *API) knowsRule(path string) error {
	var paths []string
	tree := a.options.Limits.Tree()
	tree.Each(func(_ *descriptors.Domain, r *descriptors.Rule) { paths = append(paths, r.Path) })
	for _, d := range tree.Domains() {
		paths = append(paths, service.OverridePath(d.Name))
	}
	if slices.Contains(paths, path) {
		return nil
	}
	advice := cmp.Or(spelling.Suggest(path, paths), "; rls rules lists the rules in force")
	return status.Errorf(codes.NotFound, "no rule %q is in force%s", path, advice)
}
