package main

import (
	"os"
	"testing"
)

// TestThePictureIsTrue: the picture that is stored is the one that the strategies draw.
func TestThePictureIsTrue(t *testing.T) {
	want, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/pictures/strategies.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/pictures/strategies.svg is not what the strategies draw: run make pictures, and look at it")
	}
}
