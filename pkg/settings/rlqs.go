package settings

import "time"

// RLQS says how shares of limits are assigned to Envoys that enforce them.
type RLQS struct {
	AssignmentTTL time.Duration `env:"ASSIGNMENT_TTL" default:"15s" min:"1s" max:"1h" help:"How long an assignment of Envoy's quota protocol (RateLimitQuotaService) holds; a fraction of a second is cut off. Envoy reports every 5s, which renews it, so with Envoy it must be longer than that. The share of an Envoy that does not report comes back after this time."`
}
