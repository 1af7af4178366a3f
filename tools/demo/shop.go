package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"time"
)

// customer is a sender of requests to the shop.
type customer struct {
	name, plan string
	perSecond  float64
	paths      []string // each as likely as the others
}

// customers are the customers of the shop: a few dozen browse, and a few exceed their
// limits.
func customers() []customer {
	browse := []string{"/", "/products/7", "/products/12", "/products/31", "/cart", "/search?q=shoes", "/checkout"}
	all := []customer{
		{name: "scraper", plan: "free", perSecond: 6, paths: []string{"/search?q=a", "/search?q=b", "/products/1", "/products/2"}},
		{name: "crawler", plan: "free", perSecond: 2, paths: []string{"/", "/products/3", "/products/4", "/cart"}},
		{name: "mallory", plan: "free", perSecond: 0.5, paths: []string{"/login"}},
		{name: "trudy", plan: "free", perSecond: 0.2, paths: []string{"/login"}},
		{name: "warehouse", plan: "pro", perSecond: 8, paths: []string{"/products/7", "/products/8", "/search?q=stock"}},
	}
	for i := range 40 {
		plan := "free"
		if i%5 == 0 {
			plan = "pro"
		}
		all = append(all, customer{name: fmt.Sprintf("customer-%02d", i+1), plan: plan, perSecond: 4 / float64(i+3), paths: browse})
	}
	return all
}

// shopping has the customers send requests to the shop behind Envoy, whose URL has no
// slash at its end, until ctx ends. They send more and less again every two minutes.
func shopping(ctx context.Context, url string) {
	start := time.Now()
	for _, c := range customers() {
		go func() {
			for {
				tide := 1 + 0.6*math.Sin(2*math.Pi*time.Since(start).Minutes()/2)
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(rand.ExpFloat64() / (c.perSecond * tide) * float64(time.Second))):
					c.ask(ctx, url)
				}
			}
		}()
	}
}

// ask sends one request and ignores its answer, as a denied customer is part of the demo.
func (c *customer) ask(ctx context.Context, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+c.paths[rand.N(len(c.paths))], nil)
	if err != nil {
		return
	}
	req.Header.Set("x-user", c.name)
	req.Header.Set("x-plan", c.plan)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
