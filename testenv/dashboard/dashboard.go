// Package dashboard drives the pages of pq dashboard in a real browser, against a real system.
//
// It is a module of its own, because the driver of the browser is none of the programs' business.
// The browser is Chromium: PQ_TEST_CHROMIUM names it, or it is found as chromium, chromium-browser
// or google-chrome.
package dashboard
