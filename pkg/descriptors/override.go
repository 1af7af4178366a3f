package descriptors

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/rls/pkg/algorithms"
)

// Override returns a copy of l that allows requests hits per multiplier × unit: the
// limit that a request brings along (Envoy's limit override). The copy has l.Share of
// the requests. It has no Name and no Replaces, because an override neither replaces a
// limit nor is replaced, is enforced for every key, and keeps everything else. A Limit
// without an [algorithms.Limit] stands for a fixed_window.
//
// Some options give way instead of failing the request. More requests than a
// sliding_log can remember are decided by a sliding_window. A burst that would
// need more than 100 years to refill at the new rate becomes the strategy's
// default, and a debt that would need longer that of `overdraft: true`. A limit of
// concurrency has at most [algorithms.MaxLogRequests] slots. A lease whose share is less
// than one hit is left out. So is a calendar whose
// periods are not as long as the window, and a start of weeks, months or years which is
// of another unit.
//
// The error says which of unit and multiplier is wrong and what would be right.
func (l *Limit) Override(requests uint32, unit Unit, multiplier uint32) (Limit, error) {
	if !unit.Valid() {
		return Limit{}, fmt.Errorf("unit %d is unknown; want SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)", unit)
	}
	if longest := uint32(algorithms.MaxWindow / unit.Duration()); multiplier == 0 || multiplier > longest {
		return Limit{}, fmt.Errorf("unit_multiplier is %d; want 1 to %d with %s", multiplier, longest, unit)
	}
	copied := Limit{OnError: l.OnError}
	var spec algorithms.Spec
	if l.Limit != nil {
		copied, spec = *l, l.Spec
		spec.Burst, spec.Mark = l.WrittenBurst, ""
		copied.Shadow, copied.Watched, copied.As = false, 0, nil
	}
	copied.Name, copied.Replaces, copied.Unit, copied.Multiplier = "", nil, unit, multiplier
	copied.WrittenRequests, requests = requests, copied.Share.Of(requests)
	spec.Requests, spec.Window = requests, time.Duration(multiplier)*unit.Duration()
	spec.Calendar = spec.Calendar.For(spec.Window)
	if requests > algorithms.MaxLogRequests {
		switch spec.Strategy {
		case algorithms.SlidingLog:
			spec.Strategy = algorithms.SlidingWindow
		case algorithms.Concurrency:
			spec.Requests = algorithms.MaxLogRequests
		}
	}
	var err error
	copied.Limit, err = algorithms.New(spec)
	var wrong *algorithms.SpecError
	if errors.As(err, &wrong) && wrong.Field == "burst" {
		spec.Burst, copied.WrittenBurst = 0, 0
		copied.Limit, err = algorithms.New(spec)
	}
	if errors.As(err, &wrong) && wrong.Field == "overdraft" {
		spec.Overdraft = algorithms.FullOverdraft
		copied.Limit, err = algorithms.New(spec)
	}
	if errors.As(err, &wrong) && strings.HasPrefix(wrong.Field, "lease") {
		spec.Lease = algorithms.Lease{}
		copied.Limit, err = algorithms.New(spec)
	}
	return copied, err
}
