package algorithms

import (
	"fmt"
	"strconv"
	"strings"
)

// Percent is a part of a limit, in millionths of it.
type Percent uint32

// Whole is all of a limit.
const Whole Percent = 1_000_000

// ParsePercent reads a percentage above 0%, at most 100%, with at most 4 digits
// after the point.
func ParsePercent(text string) (Percent, error) {
	p, percent, ok := parsePercent(text)
	switch {
	case !ok || percent == 0:
		return 0, fmt.Errorf("must be a percentage above 0%% and at most 100%%, such as 5%%, not %q", text)
	case p == 0:
		return 0, fmt.Errorf("must be at least 0.0001%%, not %q", text)
	}
	return p, nil
}

// ParseRollout reads a percentage from 0% to 100%, with at most 4 digits after the point.
func ParseRollout(text string) (Percent, error) {
	p, percent, ok := parsePercent(text)
	switch {
	case !ok:
		return 0, fmt.Errorf("must be a percentage from 0%% to 100%%, such as 10%% or 0.5%%, not %q", text)
	case p == 0 && percent > 0:
		return 0, fmt.Errorf("must be 0%% or at least 0.0001%%, not %q", text)
	}
	return p, nil
}

// parsePercent reads a percentage from 0% to 100%.
func parsePercent(text string) (p Percent, percent float64, ok bool) {
	number, found := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	// Not "percent < 0 || percent > 100", which NaN would pass.
	if !found || err != nil || !(percent >= 0 && percent <= 100) {
		return 0, 0, false
	}
	return Percent(percent*10_000 + 0.5), percent, true
}

// String is the part as it is written: 5%.
func (p Percent) String() string {
	return strconv.FormatFloat(float64(p)/10_000, 'f', -1, 64) + "%"
}

// floor is floor(p × n).
func (p Percent) floor(n uint32) uint32 { return uint32(uint64(n) * uint64(p) / uint64(Whole)) }

// Of is floor(p × n), but at least 1 if n > 0. The zero Percent stands for all of n.
func (p Percent) Of(n uint32) uint32 {
	if p == 0 || n == 0 {
		return n
	}
	return max(1, p.floor(n))
}
