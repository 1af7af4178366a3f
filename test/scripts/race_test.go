//go:build race

package scripts

// race tells that the test is built with the race detector.
const race = true
