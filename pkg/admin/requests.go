package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service/operate"
)

// Query is what a GET asks, by the names of its fields in lower case. Each route takes some of them.
type Query struct {
	By, Rule, Q            string
	Since                  *time.Duration
	Range                  string // of the history
	Above, Cursor          string
	N, Offset              int
	History, Follow, Fleet bool
	Group                  bool
	// Replica asks only this one of the replicas, by its address in the answer; only with Fleet.
	Replica string
}

// To is the path of a URL with q as its query.
func (q Query) To(path string) string {
	query := url.Values{}
	for field, value := range reflect.ValueOf(q).Fields() {
		if !value.IsZero() {
			query.Set(strings.ToLower(field.Name), fmt.Sprint(value))
		}
	}
	return path + "?" + query.Encode()
}

// LookRequest is the body of /v1/get and /v1/explain: a request as Envoy sends it, without the
// wish to be charged, or a pool.
type LookRequest struct {
	operate.Question
	// RLQS tells the buckets of Envoys that enforce limits themselves, too (only /v1/explain).
	RLQS bool `json:"rlqs,omitempty"`
}

// ResetRequest is the body of /v1/reset and /v1/forget. It names cells in one of three ways: by
// domain and descriptors, by domain and pool, or by domain, rule and all_matching.
type ResetRequest struct {
	operate.Question
	Rule        string `json:"rule,omitempty"` // the path of a rule, such as shop.plan_free.user
	AllMatching bool   `json:"all_matching,omitempty"`
	DryRun      bool   `json:"dry_run,omitempty"` // changes nothing and tells what would change
	Reason      string `json:"reason,omitempty"`  // stands in the audit
}

// GrantRequest is the body of /v1/grant. With For or Until it is a grant until a time.
type GrantRequest struct {
	operate.Question
	Grant int64 `json:"hits,omitempty"` // at least 1, at most 10 times the limit
	// For is a duration, such as 6h, and Until a time of RFC 3339.
	For   string `json:"for,omitempty"`
	Until string `json:"until,omitempty"`
	// Limit stands in place of the limit until a time; with it there is no Grant.
	Limit *Rate `json:"limit,omitempty"`
	// Only is the name of one limit, or its text such as "20000 per day"; without it each limit
	// of the request is granted the hits.
	Only   string `json:"only,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"` // changes nothing and tells what would change
	Reason string `json:"reason,omitempty"`  // stands in the audit
}

// Rate is a limit as a JSON object, or as its text, such as 600/minute.
type Rate struct{ descriptors.Rate }

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rate) UnmarshalJSON(data []byte) (err error) {
	var text string
	if json.Unmarshal(data, &text) != nil {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		return decoder.Decode(&r.Rate)
	}
	r.Rate, err = descriptors.ParseLimit(text)
	return err
}

// granting is what r asks for. Its errors are InvalidArgument.
func (r *GrantRequest) granting() (g operate.Granting, err error) {
	g = operate.Granting{Hits: r.Grant, Only: r.Only, Reason: r.Reason}
	switch untilTime := r.For != "" || r.Until != ""; {
	case r.For != "" && r.Until != "":
		return g, invalid("for and until are both set: want one of them")
	case r.Limit != nil && r.Grant != 0:
		return g, invalid("limit and hits are both set: want one of them")
	case r.Limit != nil && !untilTime:
		return g, invalid("limit is set without for or until: a grant of the running window has hits")
	case r.Limit == nil && r.Grant < 1:
		return g, invalid("hits is %d: want at least 1", r.Grant)
	}
	if r.Limit != nil {
		g.Rate = &r.Limit.Rate
	}
	if r.For != "" {
		if g.For, err = time.ParseDuration(r.For); err != nil || g.For <= 0 {
			return g, invalid("for is %q: want a duration above 0 and of at most 31 days, such as 6h or 30m", r.For)
		}
	}
	if r.Until != "" {
		if g.Until, err = time.Parse(time.RFC3339, r.Until); err != nil || g.Until.IsZero() {
			return g, invalid("until is %q: want a time such as 2026-11-27T09:00:00Z", r.Until)
		}
	}
	return g, nil
}

// RevokeRequest is the body of /v1/revoke. The help is that of the command's flags.
type RevokeRequest struct {
	ID     string `json:"id" arg:"" help:"ID of the grant."` // of a grant until a time
	Reason string `json:"reason,omitempty" placeholder:"TEXT" help:"Reason for the end, for the audit."`
}

const (
	// maxBody bounds the body of a request in bytes, and bodyWithin the time to read it.
	maxBody    = 1 << 20
	bodyWithin = 10 * time.Second
)

// read reads what a route takes, from the body of a POST, else from the query.
func (to *route) read(w http.ResponseWriter, r *http.Request) (any, error) {
	request := to.request()
	if q, asks := request.(*Query); asks {
		return q, q.read(r.URL.RawQuery, to.names())
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, overHTTP(http.StatusRequestEntityTooLarge, codes.ResourceExhausted, "the body is too large: want at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, invalid("the body cannot be read: %v", err)
	}
	return request, readBody(body, request)
}

// jsonKinds are the kinds of Go values as JSON has them; the others are whole numbers.
var jsonKinds = map[reflect.Kind]string{
	reflect.Struct: "a JSON object", reflect.Slice: "an array", reflect.String: "a string", reflect.Bool: "true or false",
}

// surrogates are whole pairs, backslashes and other characters below \ud800 as JSON escapes them.
var surrogates = regexp.MustCompile(`(?i)\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\ud[0-7]`)

// embedded are the names of Go structs in the path of a field, which JSON does not have.
var embedded = regexp.MustCompile(`^([A-Z]\w*\.)+`)

// readBody reads a JSON object. Unknown fields are errors, and so are texts that are not UTF-8,
// which would ask about another counter.
func readBody(body []byte, to any) error {
	if !utf8.Valid(body) {
		return invalid("the body is wrong: it is not UTF-8; want the bytes of a value in base64, as raw")
	}
	if half := surrogates.ReplaceAll(body, nil); bytes.Contains(bytes.ToLower(half), []byte(`\ud`)) {
		return invalid(`the body is wrong: it has half of a surrogate pair, such as \ud800, which is no text`)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(to)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("something follows the JSON object")
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty; want a JSON object")
	}
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
		want := cmp.Or(jsonKinds[kind.Type.Kind()], "a whole number")
		return invalid("the body is wrong: %s is a JSON %s: want %s", cmp.Or(embedded.ReplaceAllString(kind.Field, ""), "it"), kind.Value, want)
	}
	return invalid("the body is wrong: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// read sets the fields with these names.
func (q *Query) read(query string, names []string) error {
	given, err := url.ParseQuery(query)
	if err != nil {
		return invalid("the query is wrong: %v", err)
	}
	fields := reflect.ValueOf(q).Elem()
	for name, texts := range given {
		if !slices.Contains(names, name) {
			return invalid("the query has an unknown name %q: want %s", name, cmp.Or(strings.Join(names, ", "), "none"))
		}
		text := texts[len(texts)-1]
		field := fields.FieldByNameFunc(func(is string) bool { return strings.ToLower(is) == name })
		switch to := field.Addr().Interface().(type) {
		case *string:
			*to = text
		case *bool:
			if *to, err = strconv.ParseBool(text); err != nil && text != "" {
				return invalid("%s is %q: want true or false", name, text)
			}
		case **time.Duration:
			if back, err := time.ParseDuration(text); text != "" {
				if err != nil || back < 0 {
					return invalid("%s is %q: want a duration, such as 1h or 30m", name, text)
				}
				*to = &back
			}
		case *int:
			if *to, err = strconv.Atoi(text); err != nil && text != "" {
				return invalid("%s is %q: want a whole number", name, text)
			}
		}
	}
	return nil
}
