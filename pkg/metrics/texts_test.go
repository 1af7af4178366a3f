package metrics_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

// Names and labels have texts that are not UTF-8 in the form that people are shown, each in a
// series of its own, in /metrics and in the lines of statsd.
func TestSeriesOfAnyText(t *testing.T) {
	m := open(t, metrics.Options{MaxSeries: 1000, NearLimitRatio: 1})
	r := rule(t, detailed, descriptors.Entry{Key: "k", Value: "v"})
	for _, text := range []string{"ann\xff", "ann\xfe", "ann\uFFFD"} {
		m.Observer().Observe(allowed(r, descriptors.Entry{Key: "k", Value: text}))
		brought := allowed(r, descriptors.Entry{Key: "x\xff", Value: text})
		brought.Verdicts[0].Override, brought.Verdicts[0].Rule = true, nil
		m.Observer().Observe(brought)
		m.Observer().Observe(&service.Observation{Domain: text, Unknown: true, Descriptors: 1})
	}
	m.Observer().Observe(allowed(r, descriptors.Entry{Key: "k", Value: strings.Repeat("\xff", 2000)}))
	served := page(t, m)
	s, server := overUDP(t, m, nil)
	go s.Close()
	lines := strings.Join(received(t, server, 17), "\n") // two for each of 7 keys, one for each of 3 domains
	for _, text := range []string{`ann\xff`, `ann\xfe`, "ann\uFFFD"} {
		for _, key := range []string{"k_" + text, `x\xff_` + text} {
			label := `within_limit{domain="d",key1="` + strings.ReplaceAll(key, `\`, `\\`) + `"} 1`
			line := "ratelimit.service.rate_limit.d." + key + ".within_limit:1|c"
			if strings.Count(served, label) != 1 || strings.Count(lines, line) != 1 {
				t.Errorf("want one %s in %s\nand one %s in %s", label, served, line, lines)
			}
		}
		if line := "ratelimit.service.rate_limit." + text + ".domain_not_found:1|c"; !strings.Contains(lines, line) {
			t.Errorf("no %s in %s", line, lines)
		}
	}
	if !utf8.ValidString(served) || !utf8.ValidString(lines) {
		t.Error("not UTF-8")
	}
}
