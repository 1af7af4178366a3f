package client

import (
	"fmt"
	"math"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/internal/terminal"
)

// answerText has the overall code, a line for each descriptor, the failure policy if
// the metadata have one, and a line for each header.
func answerText(names []string, resp *rls.RateLimitResponse, colors terminal.Colors) string {
	var b strings.Builder
	paint := colors.Green
	if resp.GetOverallCode() != rls.RateLimitResponse_OK {
		paint = colors.Red
	}
	fmt.Fprintln(&b, paint(resp.GetOverallCode().String()))
	for i, status := range resp.GetStatuses() {
		if i < len(names) {
			b.WriteString(names[i] + ": ")
		}
		b.WriteString(status.GetCode().String())
		switch limit := status.GetCurrentLimit(); {
		case limit != nil:
			fmt.Fprintf(&b, ", limit %d per %s", limit.GetRequestsPerUnit(), strings.ToLower(limit.GetUnit().String()))
			if limit.GetName() != "" {
				fmt.Fprintf(&b, " (%s)", limit.GetName())
			}
			fmt.Fprintf(&b, ", remaining %d, reset in %v", status.GetLimitRemaining(), status.GetDurationUntilReset().AsDuration())
		case status.GetLimitRemaining() == math.MaxUint32:
			b.WriteString(", unlimited")
		default:
			b.WriteString(", no limit")
		}
		b.WriteString("\n")
	}
	if policy := resp.GetDynamicMetadata().GetFields()["policy"].GetStringValue(); policy != "" {
		fmt.Fprintf(&b, "policy: %s\n", policy)
	}
	for _, header := range resp.GetResponseHeadersToAdd() {
		fmt.Fprintf(&b, "%s: %s\n", header.GetKey(), header.GetValue())
	}
	return b.String()
}
