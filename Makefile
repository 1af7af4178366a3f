.PHONY: tools
tools: ## install the real servers that tests and the demo start
	@scripts/tools.sh
