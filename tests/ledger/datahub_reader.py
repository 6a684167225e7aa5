"""Read a file with DataHub's own source for files, run in the environment build/queries; print what it read as JSON."""

import json
import sys

from datahub.emitter.mcp import MetadataChangeProposalWrapper
from datahub.ingestion.api.common import PipelineContext
from datahub.ingestion.source.file import FileSourceConfig, GenericFileSource

source = GenericFileSource(PipelineContext(run_id="test"), FileSourceConfig(path=sys.argv[1]))
found = []
for unit in source.get_workunits():
    proposal = unit.metadata
    assert isinstance(proposal, MetadataChangeProposalWrapper), proposal
    assert proposal.validate(), proposal
    assert proposal.aspect is not None, proposal
    found.append({"urn": proposal.entityUrn, "aspect": proposal.aspectName, "value": proposal.aspect.to_obj()})
report = source.get_report()
assert (list(report.failures), list(report.warnings)) == ([], []), report.as_string()
print(json.dumps(found))
