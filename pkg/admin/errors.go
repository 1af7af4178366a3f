package admin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// named is a code as the API's documents write it, and its HTTP status.
type named struct {
	name string
	http int
}

var names = map[codes.Code]named{
	codes.Canceled:           {"CANCELLED", 499},
	codes.Unknown:            {"UNKNOWN", http.StatusInternalServerError},
	codes.InvalidArgument:    {"INVALID_ARGUMENT", http.StatusBadRequest},
	codes.DeadlineExceeded:   {"DEADLINE_EXCEEDED", http.StatusGatewayTimeout},
	codes.NotFound:           {"NOT_FOUND", http.StatusNotFound},
	codes.PermissionDenied:   {"PERMISSION_DENIED", http.StatusForbidden},
	codes.ResourceExhausted:  {"RESOURCE_EXHAUSTED", http.StatusTooManyRequests},
	codes.FailedPrecondition: {"FAILED_PRECONDITION", http.StatusBadRequest},
	codes.Unimplemented:      {"UNIMPLEMENTED", http.StatusNotImplemented},
	codes.Internal:           {"INTERNAL", http.StatusInternalServerError},
	codes.Unavailable:        {"UNAVAILABLE", http.StatusServiceUnavailable},
	codes.Unauthenticated:    {"UNAUTHENTICATED", http.StatusUnauthorized},
}

// problem is the document of an error.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func nameOf(err error) named {
	if known, ok := names[status.Code(err)]; ok {
		return known
	}
	return names[codes.Unknown]
}

func problemOf(err error) problem { return problem{nameOf(err).name, status.Convert(err).Message()} }

// misuse is an error that has a status of its own over HTTP.
type misuse struct {
	status *status.Status
	http   int
}

// Error implements error.
func (m *misuse) Error() string { return m.status.Message() }

// GRPCStatus gives the error its code and message over gRPC.
func (m *misuse) GRPCStatus() *status.Status { return m.status }

func overHTTP(http int, code codes.Code, format string, args ...any) error {
	return &misuse{status.Newf(code, format, args...), http}
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
	code := nameOf(err).http
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
