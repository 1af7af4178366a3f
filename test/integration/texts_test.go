package integration

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// bytesOnTheWire sends bytes as they are, since proto.Marshal refuses texts that are not UTF-8, and
// reads replies as protobuf does.
type bytesOnTheWire struct{}

func (bytesOnTheWire) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesOnTheWire) Unmarshal(data []byte, v any) error {
	return proto.Unmarshal(data, v.(proto.Message))
}
func (bytesOnTheWire) Name() string { return "proto" }

// asks is the code of the answer to a request with one entry, of any bytes.
func (s *service) asks(key, value string) pb.RateLimitResponse_Code {
	s.t.Helper()
	text := func(b []byte, number protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
	}
	entry := text(text(nil, 1, key), 2, value)
	message := text(text(nil, 1, "shop"), 2, string(text(nil, 1, string(entry))))
	var reply pb.RateLimitResponse
	err := dial(s.t, s.addrs["gRPC"], nil).Invoke(s.t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName, message, &reply, grpc.ForceCodec(bytesOnTheWire{}))
	if err != nil {
		s.t.Fatalf("%q: %v", value, err)
	}
	return reply.GetOverallCode()
}

// TestCallersOfAnyText: a caller whose text is not UTF-8 is denied, found by what people are shown,
// and reset by its bytes; the caller whose text is what they are shown is another one.
func TestCallersOfAnyText(t *testing.T) {
	t.Parallel()
	s := serve(t, "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n",
		append(withOperator(t), "BACKEND_TYPE=memory", "RESPONSE_DYNAMIC_METADATA=true")...)
	for text, shown := range map[string]string{"ann\xff": `ann\xff`, "\xff\\x": `\xff\\x`, "caf\xe9": `caf\xe9`, "\x9f": `\x9f`, "\xed\xa0\x80": `\xed\xa0\x80`} {
		for i, want := range []pb.RateLimitResponse_Code{ok, over, over} {
			if got := s.asks("user", text); got != want {
				t.Fatalf("%q, request %d: got %v", text, i, got)
			}
		}
		if got := s.asks("user", shown); got != ok {
			t.Errorf("the caller %s got %v after those of %q", shown, got, text)
		}
		found := s.denied("?q=" + url.QueryEscape(shown)).Denials
		if len(found) != 2 || found[0].Entries[0].Value != text {
			t.Fatalf("%s: found %+v", shown, found)
		}
		entries, err := json.Marshal(found[0].Entries)
		if err != nil || !strings.Contains(string(entries), `"raw":"`+base64.StdEncoding.EncodeToString([]byte(text))+`"`) {
			t.Errorf("%q: got %s, %v", text, entries, err)
		}
		body := `{"domain":"shop","descriptors":[{"entries":` + string(entries) + `}]}`
		if code, got := s.operate("/v1/get", body); code != 200 || got.Descriptors[0].Limits[0].Count < 1 || got.Descriptors[0].Limits[0].Remaining != 0 {
			t.Errorf("get %s: got %d %+v", body, code, got)
		}
		if code, got := s.operate("/v1/reset", body); code != 200 || got.Changed != 1 {
			t.Errorf("reset %s: got %d %+v", body, code, got)
		}
		if got := s.asks("user", text); got != ok {
			t.Errorf("%q after a reset: got %v", text, got)
		}
		if got := s.asks("user", shown); got != over {
			t.Errorf("%s was reset, too: got %v", shown, got)
		}
	}
}
