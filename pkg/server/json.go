package server

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// JSON is the RateLimitService for clients without gRPC: a page that takes a
// RateLimitRequest in protobuf's JSON, by any method. It answers 200 or 429
// with the RateLimitResponse. Every error is 400, as in envoyproxy/ratelimit,
// with the reason in the second line of the body.
type JSON struct {
	Service rls.RateLimitServiceServer
	Measure Measure
	Log     *slog.Logger // is told of panics
}

// ServeHTTP implements [http.Handler].
func (j *JSON) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp, err := j.decide(r)
	var body []byte
	if err == nil {
		body, err = protojson.Marshal(resp)
	}
	if err != nil {
		http.Error(w, http.StatusText(http.StatusBadRequest)+"\n"+status.Convert(err).Message(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch resp.GetOverallCode() {
	case rls.RateLimitResponse_OVER_LIMIT:
		w.WriteHeader(http.StatusTooManyRequests)
	case rls.RateLimitResponse_UNKNOWN:
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(body)
}

func (j *JSON) decide(r *http.Request) (resp *rls.RateLimitResponse, err error) {
	body, err := io.ReadAll(r.Body) // no more than Options.MaxBytes
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	var req rls.RateLimitRequest
	if err := protojson.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	defer func() { j.Measure.Answered(status.Code(err)) }()
	defer recovered(j.Measure, j.Log, "/json", &err)
	return j.Service.ShouldRateLimit(r.Context(), &req)
}
