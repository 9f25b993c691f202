# An image for JupyterHub's users: the pinned packages and the course, without answers. First `make students`; then
#
#     docker build --build-arg JUPYTERHUB=6.1.1 --tag custom-gradients .
#
# The JupyterHub that starts it must have the same version as the one in it.
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG JUPYTERHUB=6.1.1
RUN useradd --create-home --uid 1000 --shell /bin/bash jovyan
COPY students/custom-gradients /opt/custom-gradients
# In the course's folder: where the coach is in it, the requirements name it by "-e .".
RUN cd /opt/custom-gradients && pip install --no-cache-dir --requirement requirements.txt jupyterhub==${JUPYTERHUB}
# For a hub with nbgrader: its Validate button reads this wherever the server starts.
COPY students/custom-gradients/nbgrader_config.py /etc/jupyter/
# A home is often a volume that hides what the image has there, so each start puts in what is missing, and changes nothing.
RUN printf '%s\n' '#!/bin/sh' 'cp -R -n /opt/custom-gradients "$HOME" || :' 'exec "$@"' >/usr/local/bin/start-course \
    && chmod 755 /usr/local/bin/start-course
USER jovyan
WORKDIR /home/jovyan
EXPOSE 8888
ENTRYPOINT ["start-course"]
CMD ["jupyterhub-singleuser"]
